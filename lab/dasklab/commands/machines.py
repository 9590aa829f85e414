"""The commands for the lab's machines: what is missing, what would be done, build, look, enter, remove."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasklab.commands.locking import locked
from dasklab.commands.options import inventory_option, new_results_option
from dasklab.commands.target import announce, open_running, open_target
from dasklab.errors import LabError
from dasklab.machines import presence
from dasklab.machines import ssh as ssh_to
from dasklab.machines.guests import choose_guests
from dasklab.machines.inventory import Inventory
from dasklab.machines.variables import open_lab
from dasklab.model.nic import MODELS
from dasklab.running import playbook

if TYPE_CHECKING:
    from dasklab.machines.preflight import Finding

UNREACHABLE = 4  # exit code of ansible-playbook when a machine does not answer


@click.command()
@inventory_option
def doctor(inventory: Path) -> None:
    """Say what is missing here or on the Proxmox VE, and the line that mends it."""
    from dasklab.machines.doctor import examine

    lab = open_lab(inventory)
    bad = 0
    if check := lab.optional(lab.hosts()[0], "endpoint_check"):
        bad += subprocess.run(check, check=False).returncode != 0
        _command(lab, "endpoint_start")
    for finding in examine(lab):
        bad += not finding.well
        _show(finding)
    _tell_experiments(lab)
    sys.exit(1 if bad else 0)


@click.command()
@inventory_option
def plan(inventory: Path) -> None:
    """Show what `up` would do to the machines; change nothing."""
    _plan(open_lab(inventory))


def _plan(lab: Inventory) -> None:
    """Show the plan. An endpoint that was never started is not started for it: there is nothing on it yet."""
    options = ["--check", "--diff", "--tags", "key,machines"]
    if presence.never_started(lab):
        click.echo("The local endpoint has never been started: this is the plan for a new one.", err=True)
        account = {"user": "lab@pve", "token_id": "none", "token_secret": "none"}
        facts = {"endpoint_facts": _future_facts(lab), "endpoint_account": account}
        options += ["-e", json.dumps({**facts, "proxmox_vm_fresh": True})]
    else:
        presence.require_endpoint(lab)
    _play("provision.yml", lab, options)


def _future_facts(lab: Inventory) -> dict[str, Any]:
    """What a plan needs of the facts of an endpoint that was never started."""
    build = lab.optional(lab.hosts()[0], "endpoint_image_build") or []
    images = {"image_file": ["--path"], "template_file": ["--container", "--path"]}
    return {
        "host": "not-started", "port": 8006, "ca_file": "", "shell": "/bin/sh", "interfaces_file": "",
        **{key: _output([*build, *words]) for key, words in images.items() if build},
    }  # fmt: skip


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@click.command()
@inventory_option
@new_results_option
@click.option("--check", is_flag=True, help="Only say what would be done, on the machines too.")
@click.option("--diff", is_flag=True, help="Show each difference.")
@click.option("--only", type=click.Choice(["provision", "configure"]), help="Only this part.")
@click.option("--guests", type=click.Choice(list(MODELS)), help="Machines or containers, kept for later.")
def up(inventory: Path, root: Path, check: bool, diff: bool, only: str | None, guests: str | None) -> None:
    """Build the lab, or bring it to what the inventory says.

    When all of it is there, a baseline is measured, once.
    """
    lab = open_lab(inventory)
    if check and presence.never_started(lab):
        _plan(lab)
        return
    if not check:
        announce(lab)
    with nullcontext() if check else locked(lab, reset=False):
        _build(lab, check, diff, only, guests)
    if not only and not check:
        _baseline(lab, root)


def _build(lab: Inventory, check: bool, diff: bool, only: str | None, guests: str | None) -> None:
    options = [flag for flag, on in (("--check", check), ("--diff", diff)) if on]
    if not check and (guests or only != "configure"):
        if guests == "vm" or (guests is None and _has_machines(lab)):
            _command(lab, "endpoint_check")  # what machines cost here, and the way round it
        _command(lab, "endpoint_start")  # its progress is seen here; it makes the state folder
    if guests and check:
        options += ["-e", f"lab_guests={guests}"]
    elif guests:
        choose_guests(lab, guests)
    if only == "configure":
        _refuse_absent(lab)
    elif not check:
        _image_ready(lab)
    _play(f"{only or 'lab'}.yml", lab, [*options, "--skip-tags", "baseline"])


@click.command()
@inventory_option
@new_results_option
@click.option("--again", is_flag=True, help="Measure it even if that was done.")
def baseline(inventory: Path, root: Path, again: bool) -> None:
    """Measure the lab as it is, once; say what was measured."""
    _baseline(open_running(inventory), root, again=again)


@click.command()
@inventory_option
def status(inventory: Path) -> None:
    """Say what is there: machines, links, cluster, captures."""
    lab = open_lab(inventory)
    presence.require_endpoint(lab)
    _play("status.yml", lab)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@inventory_option
def ssh(host: str, command: tuple[str, ...], inventory: Path) -> None:
    """Open a shell on HOST, or run COMMAND there.

    \b
    dasklab ssh scheduler
    dasklab ssh worker-1 -- tc -s qdisc show
    """
    lab = open_lab(inventory)
    if host in lab.hosts():
        presence.require_machines(lab, host)
    argv = ssh_to.command(lab, host)
    sys.exit(subprocess.run([*argv, *command], check=False).returncode)


@click.command()
@inventory_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(inventory: Path, yes: bool) -> None:
    """Remove all that carries this lab's tag.

    The endpoint that was started for it ends too; results are kept.
    """
    lab = open_target(inventory)
    name = lab.optional(lab.hosts()[0], "lab_name")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove the machines of lab {name!r}? Results are kept", abort=True)
    with locked(lab, reset=False):
        _play("destroy.yml", lab)


def _baseline(lab: Inventory, root: Path, *, again: bool = False) -> None:
    from dasklab.commands.baseline import measure

    measure(lab, root, again=again)


def _play(book: str, lab: Inventory, options: list[str] | None = None) -> None:
    code = playbook.run(book, lab.path, options=options or [])
    if code == UNREACHABLE:
        raise LabError("what is named above does not answer", _why_unreachable(book, lab))
    if code:
        sys.exit(code)


def _why_unreachable(book: str, lab: Inventory) -> str:
    """What to look at, given that machines were asked that should have been there."""
    host = lab.hosts()[0]
    if not lab.has(host, "proxmox"):
        line = shlex.join(ssh_to.command(lab, host))
        return f"`{line}` must work from here, and so for each; see {lab.path}"
    if book == "status.yml":
        return "`dasklab up` makes and starts what is missing"
    return "`dasklab status` shows which machines run, `dasklab doctor` what is missing here or on the node"


def _refuse_absent(lab: Inventory) -> None:
    """Machines that do not run cannot be configured: say so at once instead of waiting for their ssh.

    Raises:
        LabError: naming them.
    """
    hosts = tuple(lab.hosts())
    if not lab.has(hosts[0], "proxmox"):
        return
    if lab.has(hosts[0], "endpoint_start") and not presence.never_started(lab):
        _command(lab, "endpoint_start")
    missing = list(hosts) if presence.never_started(lab) else presence.absent(lab, hosts)
    if missing:
        all_of_them = missing == list(hosts)
        which = "none of this lab's machines runs" if all_of_them else f"not running: {', '.join(missing)}"
        raise LabError(f"nothing to configure, {which}", presence.NO_LAB.hint)


def _show(finding: Finding) -> None:
    mark, colour = ("ok  ", "green") if finding.well else ("FAIL", "red")
    click.secho(f"{mark}  {finding.what}", fg=colour)
    for line in finding.mend:
        click.echo(f"      {line}")


def _has_machines(lab: Inventory) -> bool:
    return any((lab.optional(host, "lab_guests") or "vm") == "vm" for host in lab.hosts())


def _tell_experiments(lab: Inventory) -> None:
    from dasklab.running.capabilities import able
    from dasklab.running.setup import setup_of

    setup = setup_of(lab)
    for kind in setup.kinds:
        first, *others = able(setup, kind)
        click.echo("\n      ".join([f"--    {first}", *others]))


def _image_ready(lab: Inventory) -> None:
    """Build the endpoint's image here, where its progress can be seen."""
    host = lab.hosts()[0]
    if lab.has(host, "endpoint_image_build") and not Path(lab.value(host, "proxmox_image")["file"]).exists():
        _command(lab, "endpoint_image_build")


def _command(lab: Inventory, name: str) -> None:
    argv = lab.optional(lab.hosts()[0], name)
    if argv and (code := subprocess.run(argv, check=False).returncode):
        raise LabError(f"{shlex.join(argv)} ended with {code}", "its own words stand above")
