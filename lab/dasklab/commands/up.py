"""``dasklab up``: build the lab, or change it to match its inventory."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from dasklab.console.lab.dry_run import print_plan
from dasklab.console.lab.locking import locked
from dasklab.console.lab.playbooks import play, run_endpoint_program
from dasklab.console.lab.target import announce
from dasklab.console.options import inventory_option, new_results_option
from dasklab.machines import local_host
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.guest_choice import choose_guests
from dasklab.machines.inventory.variables import open_lab
from dasklab.model.settings.nic import MODELS, GuestKind
from dasklab.terminal import echo


@click.command()
@inventory_option
@new_results_option
@click.option("--check", is_flag=True, help="Print what would change, on the machines too; change nothing.")
@click.option("--diff", is_flag=True, help="Print each difference.")
@click.option("--only", type=click.Choice(["provision", "configure"]), help="Do only this part.")
@click.option("--guests", type=click.Choice(list(MODELS)), help="Kind of guest, also for all later commands.")
def up(
    inventory: Path, root: Path, check: bool, diff: bool, only: str | None, guests: GuestKind | None
) -> None:
    """Build the lab, or change it to match the inventory.

    Measures a baseline at the end, unless this lab has one.
    """
    lab = open_lab(inventory)
    if check and presence.never_started(lab):
        print_plan(lab)
        return
    if not check:
        announce(lab)
    with nullcontext() if check else locked(lab, reset=False):
        _build(lab, check, diff, only, guests)
    if not only and not check:
        from dasklab.console.trials.baseline_run import measure

        measure(lab, root)


def _build(lab: Inventory, check: bool, diff: bool, only: str | None, guests: GuestKind | None) -> None:
    lab.optional(lab.hosts()[0], "ansible_control_path_dir")  # raises if its path is too long for ssh
    options = [flag for flag, on in (("--check", check), ("--diff", diff)) if on]
    variables: dict[str, str] = {}
    if not check and (guests or only != "configure"):
        kinds: tuple[GuestKind, ...] | None = (guests,) if guests else None
        _print_notes(local_host.require(lab, kinds))
        run_endpoint_program(
            lab, "endpoint_start"
        )  # here, so that its progress is visible; makes the state folder
    if guests and check:
        variables["lab_guests"] = guests
    elif guests:
        choose_guests(lab, guests)
    if only == "configure":
        _require_all_machines(lab)
    elif not check:
        _build_image(lab)
    play(f"{only or 'lab'}.yml", lab, options, variables)


def _print_notes(checked: local_host.HostCheck | None) -> None:
    """Print what to expect of this machine: whether it emulates, and what its kernel lacks."""
    for line in checked.findings if checked else ():
        if line.status == "note":
            echo(f"note  {line.text}")


def _require_all_machines(lab: Inventory) -> None:
    """Refuse to configure machines that do not run, instead of waiting for their ssh.

    Raises:
        LabError: naming them.
    """
    hosts = tuple(lab.hosts())
    if not lab.has(hosts[0], "proxmox"):
        return
    if presence.never_started(lab):
        raise presence.no_lab()
    run_endpoint_program(lab, "endpoint_start")
    if missing := presence.stopped(lab, hosts):
        raise presence.not_running(missing, lab)


def _build_image(lab: Inventory) -> None:
    """Build the local endpoint's image here, so that its progress is visible."""
    host = lab.hosts()[0]
    if lab.has(host, "endpoint_image_build") and not Path(lab.value(host, "proxmox_image")["file"]).exists():
        run_endpoint_program(lab, "endpoint_image_build")
