"""``dasklab doctor``: what is missing for a lab."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.console.options import inventory_option
from dasklab.errors import LabError
from dasklab.machines import local_host
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.variables import open_lab
from dasklab.paths import cache, results
from dasklab.terminal import console, counted, echo, print_prose, wrapped

if TYPE_CHECKING:
    from dasklab.machines.endpoint.preflight import Finding

INDENT = " " * 6


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@inventory_option
def doctor(as_json: bool, inventory: Path) -> None:
    """Check what is missing for a lab, and print how to fix it.

    Looks at this machine, the inventory and the Proxmox VE endpoint, and lists the experiments that the lab
    supports.
    """
    from dasklab.machines.doctor import examine

    lab = open_lab(inventory)
    checked = local_host.check(lab)
    is_up = _endpoint_answers(lab)
    links = _link_findings(lab) if is_up else ()
    findings = itertools.chain(_local_findings(checked, is_up), examine(lab, endpoint=is_up), links)
    if as_json:
        sys.exit(_print_json(lab, list(findings), checked))
    problems = 0
    for name, folder in _folders(lab).items():
        echo(f"--    {name}: {folder}")
    for finding in findings:
        problems += not finding.ok
        _print(finding)
    for first, *others in _experiments(lab, checked).values():
        echo(f"\n{INDENT}".join([f"--    {first}", *others]))
    if problems:
        echo(f"\n{counted(problems, 'problem')}. Fix them as described above, then: dasklab doctor")
        sys.exit(1)
    print_prose(f"\nNothing is missing. {_next_step(lab, is_up)}")


def _local_findings(checked: local_host.HostCheck | None, is_up: bool) -> Iterator[Finding]:
    """Yield what the check of this machine found, for a lab with a local endpoint."""
    from dasklab.machines.endpoint.preflight import Finding

    if checked is None:
        return
    fixes = {problem.text: problem.fix for problem in local_host.problems(checked)}
    for line in checked.findings:
        fix = fixes.get(line.text, line.fix)
        yield Finding(line.text, line.status != "missing", (fix,) if fix else (), line.status == "note")
    if not is_up:
        yield Finding("local endpoint: not running; dasklab up starts it", True, is_note=True)


def _link_findings(lab: Inventory) -> Iterator[Finding]:
    """Yield how links of hosts that run differ from what the lab set; a host without an answer is a note."""
    from dasklab.console.lab.guest_program import call_each
    from dasklab.machines.endpoint.preflight import Finding

    try:
        stopped = presence.stopped(lab, lab.hosts()) if lab.has(lab.hosts()[0], "proxmox") else []
    except LabError:
        return  # the check of the endpoint has said it
    hosts = [host for host in lab.hosts() if host not in stopped]
    for host, answer in zip(hosts, call_each(lab, hosts, "link", "show"), strict=True):
        if isinstance(answer, LabError):
            yield Finding(f"the lab link was not checked: {answer.message}", True, is_note=True)
        elif answer["differences"]:
            fix = (f"dasklab tc {host} reset",)
            yield Finding(f"{host}: {'; '.join(answer['differences'])}", False, fix)


def _endpoint_answers(lab: Inventory) -> bool:
    """Return whether a local endpoint runs. A lab on a node has none to start, and is always asked."""
    if not lab.has(lab.hosts()[0], "endpoint_start"):
        return True
    try:
        presence.require_endpoint(lab)
    except LabError:
        return False
    return True


def _next_step(lab: Inventory, is_up: bool) -> str:
    if not lab.has(lab.hosts()[0], "proxmox"):
        return "To configure the machines: dasklab up"
    missing = presence.stopped(lab, lab.hosts()) if is_up else lab.hosts()
    if len(missing) == len(lab.hosts()):
        return "To build the lab: dasklab up (dasklab plan shows what it would do)"
    if missing:
        return f"To start {', '.join(missing)}: dasklab up"
    return "The lab is running: dasklab status"


def _print_json(lab: Inventory, findings: list[Finding], checked: local_host.HostCheck | None) -> int:
    """Print all findings as JSON; return the exit status."""
    from dasklab.machines.doctor import CheckedLab, versions
    from dasklab.model.forms.json_output import to_json

    folders = {name: str(folder) for name, folder in _folders(lab).items()}
    document = CheckedLab(versions(), folders, findings, _experiments(lab, checked))
    echo(to_json(document, CheckedLab))
    return int(not all(finding.ok for finding in findings))


def _folders(lab: Inventory) -> dict[str, Path]:
    """Return the folders that the lab uses."""
    state = lab.optional(lab.hosts()[0], "lab_state_dir")
    folders = {"state": state, "cache": cache(), "results": results().absolute()}
    return {name: Path(folder) for name, folder in folders.items() if folder}


def _print(finding: Finding) -> None:
    mark, colour = (
        ("FAIL", "red") if not finding.ok else ("note", None) if finding.is_note else ("ok  ", "green")
    )
    echo(wrapped(f"{mark}  {finding.text}", console(sys.stdout).width, INDENT), fg=colour)
    for line in finding.fix:
        echo(f"{INDENT}{line}")


def _experiments(lab: Inventory, checked: local_host.HostCheck | None) -> dict[str, list[str]]:
    """Return lines that say which experiments this lab supports, for each kind of guest that it has."""
    from dasklab.running.plan.capabilities import supported_experiments, with_kernel
    from dasklab.running.plan.setup import setup_of

    setup = with_kernel(setup_of(lab), checked)
    kinds = local_host.kinds_of(lab) if setup.kinds else ()
    return {kind: supported_experiments(setup, kind) for kind in kinds}
