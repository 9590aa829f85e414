"""``dasklab doctor``: what is missing for a lab."""

from __future__ import annotations

import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.commands.options import inventory_option
from dasklab.commands.playbooks import run_endpoint_program
from dasklab.machines.inventory import Inventory
from dasklab.machines.variables import open_lab
from dasklab.paths import cache, results
from dasklab.terminal import counted

if TYPE_CHECKING:
    from dasklab.machines.preflight import Finding

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
    if as_json:
        sys.exit(_print_json(lab))
    problems = 0
    for name, folder in _folders(lab).items():
        click.echo(f"--    {name}: {folder}")
    if check := lab.optional(lab.hosts()[0], "endpoint_check"):
        problems += subprocess.run(check, check=False).returncode != 0
        run_endpoint_program(lab, "endpoint_start")
    for finding in examine(lab):
        problems += not finding.ok
        _print(finding)
    for first, *others in _experiments(lab).values():
        click.echo(f"\n{INDENT}".join([f"--    {first}", *others]))
    if problems:
        click.echo(f"\n{counted(problems, 'problem')}. Fix them as described above, then: dasklab doctor")
        sys.exit(1)
    click.echo("\nNothing is missing. To build the lab: dasklab up (dasklab plan shows what it would do)")


def _print_json(lab: Inventory) -> int:
    """Print all findings as JSON; return the exit status."""
    from dasklab.commands.json_documents import CheckedLab, to_json
    from dasklab.machines.doctor import examine
    from dasklab.machines.preflight import Finding

    findings = []
    if check := lab.optional(lab.hosts()[0], "endpoint_check"):
        process = subprocess.run(check, check=False, capture_output=True, text=True)
        lines = tuple(line.strip() for line in (process.stdout + process.stderr).splitlines() if line.strip())
        text = "this machine, for the local endpoint"
        findings.append(Finding(text, not process.returncode, lines if process.returncode else ()))
        with redirect_stdout(sys.stderr):
            run_endpoint_program(lab, "endpoint_start")
    findings += examine(lab)
    folders = {name: str(folder) for name, folder in _folders(lab).items()}
    content = {"folders": folders, "findings": findings, "experiments": _experiments(lab)}
    click.echo(to_json(CheckedLab.model_validate(content)))
    return int(not all(finding.ok for finding in findings))


def _folders(lab: Inventory) -> dict[str, Path]:
    """Return the folders that the lab uses."""
    state = lab.optional(lab.hosts()[0], "lab_state_dir")
    folders = {"state": state, "cache": cache(), "results": results().absolute()}
    return {name: Path(folder) for name, folder in folders.items() if folder}


def _print(finding: Finding) -> None:
    mark, colour = ("ok  ", "green") if finding.ok else ("FAIL", "red")
    click.secho(f"{mark}  {finding.text}", fg=colour)
    for line in finding.fix:
        click.echo(f"{INDENT}{line}")


def _experiments(lab: Inventory) -> dict[str, list[str]]:
    """Return lines that say which experiments this lab supports, for each kind of guest."""
    from dasklab.running.capabilities import supported_experiments
    from dasklab.running.setup import setup_of

    setup = setup_of(lab)
    return {kind: supported_experiments(setup, kind) for kind in setup.kinds}
