"""The commands for the lab's machines: what is missing, what would be done, build, look, enter, remove."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab.commands.locking import locked
from lab.commands.options import inventory_option, results_option
from lab.errors import LabError
from lab.machines import ssh as ssh_to
from lab.machines.guests import choose_guests
from lab.machines.inventory import Inventory
from lab.model.nic import MODELS
from lab.running import playbook

if TYPE_CHECKING:
    from lab.machines.preflight import Finding

UNREACHABLE = 4  # exit code of ansible-playbook when a machine does not answer


@click.command()
@inventory_option
def doctor(inventory: Path) -> None:
    """Say what is missing here or on the Proxmox VE, and the line that mends it."""
    from lab.machines.doctor import examine

    lab = Inventory(inventory)
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
    options = ["--check", "--diff", "--tags", "endpoint,key,machines"]
    _play("provision.yml", Inventory(inventory), options)


@click.command()
@inventory_option
@results_option
@click.option("--check", is_flag=True, help="Only say what would be done, on the machines too.")
@click.option("--diff", is_flag=True, help="Show each difference.")
@click.option("--only", type=click.Choice(["provision", "configure"]), help="Only this part.")
@click.option("--guests", type=click.Choice(list(MODELS)), help="Machines or containers, kept for later.")
def up(inventory: Path, root: Path, check: bool, diff: bool, only: str | None, guests: str | None) -> None:
    """Build the lab, or bring it to what the inventory says.

    When all of it is there, a baseline is measured, once.
    """
    lab = Inventory(inventory)
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
@results_option
def baseline(inventory: Path, root: Path) -> None:
    """Measure the lab as it is, once; say what was measured."""
    _baseline(Inventory(inventory), root)


@click.command()
@inventory_option
def status(inventory: Path) -> None:
    """Say what is there: machines, links, cluster, captures."""
    _play("status.yml", Inventory(inventory))


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
    argv = ssh_to.command(Inventory(inventory), host)
    sys.exit(subprocess.run([*argv, *command], check=False).returncode)


@click.command()
@inventory_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(inventory: Path, yes: bool) -> None:
    """Remove all that carries this lab's tag.

    The endpoint that was started for it ends too; results are kept.
    """
    lab = Inventory(inventory)
    name = lab.optional(lab.hosts()[0], "lab_name")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove the machines of lab {name!r}? Results are kept", abort=True)
    with locked(lab, reset=False):
        _play("destroy.yml", lab)


def _baseline(lab: Inventory, root: Path) -> None:
    from lab.commands.baseline import measure

    measure(lab, root)


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
        return f"`ssh {ssh_to.login(lab, host)}` must work from here, and so for each; see {lab.path}"
    if book == "status.yml":
        return "`dasklab up` makes and starts what is missing"
    return "`dasklab status` shows which machines run, `dasklab doctor` what is missing here or on the node"


def _refuse_absent(lab: Inventory) -> None:
    """Machines that do not run cannot be configured: say so at once instead of waiting for their ssh.

    Raises:
        LabError: naming them.
    """
    hosts = lab.hosts()
    if not lab.has(hosts[0], "proxmox"):
        return
    running = _running(lab)
    absent = [host for host in hosts if lab.value(host, "guest")["vmid"] not in running]
    if absent:
        which = "none of this lab's machines runs" if absent == hosts else f"not running: {', '.join(absent)}"
        raise LabError(f"nothing to configure, {which}", "run `dasklab up` first: it makes and starts them")


def _running(lab: Inventory) -> set[int]:
    """VMIDs of what runs on the lab's nodes; none where the lab's own endpoint was never started."""
    from lab.machines.kinds import BY_API
    from lab.machines.proxmox import Endpoint, Pve

    if lab.has(lab.hosts()[0], "endpoint_start"):
        try:
            lab.value(lab.hosts()[0], "endpoint_facts")
        except LabError:
            return set()
        _command(lab, "endpoint_start")
    pve = Pve(Endpoint.of(lab.value(lab.hosts()[0], "proxmox")))
    nodes = {lab.value(host, "guest")["node"] for host in lab.hosts()}
    records = [record for node in nodes for api in BY_API for record in pve.get(f"nodes/{node}/{api}")]
    return {int(record["vmid"]) for record in records if record.get("status") == "running"}


def _show(finding: Finding) -> None:
    mark, colour = ("ok  ", "green") if finding.well else ("FAIL", "red")
    click.secho(f"{mark}  {finding.what}", fg=colour)
    for line in finding.mend:
        click.echo(f"      {line}")


def _has_machines(lab: Inventory) -> bool:
    return any((lab.optional(host, "lab_guests") or "vm") == "vm" for host in lab.hosts())


def _tell_experiments(lab: Inventory) -> None:
    from lab.running.able import able
    from lab.running.setup import setup_of

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
