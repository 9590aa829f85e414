"""``dasklab init``: the inventory of a new lab."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.console.path_types import OutputFolder
from dasklab.terminal import echo


@click.command()
@click.argument("folder", type=OutputFolder())
@click.option("--containers", "kind", flag_value="containers", help="Containers on this machine.")
@click.option("--proxmox", "kind", flag_value="proxmox", help="Virtual machines on a Proxmox VE node.")
@click.option("--existing", "kind", flag_value="existing", help="Machines that exist already.")
def init(folder: Path, kind: str | None) -> None:
    """Write the inventory of a new lab into FOLDER.

    Without an option the lab consists of five virtual machines on this machine.

    \b
    dasklab init mylab
    cd mylab
    dasklab up
    """
    from dasklab.machines.inventory import new_lab

    inventory = new_lab.create(folder, kind or "machines")
    echo(f"Wrote {inventory} and {folder / 'ansible.cfg'}.")
    if kind in ("proxmox", "existing"):
        echo(f"Replace the example addresses and names in {inventory.parent}. Then run:")
    else:
        echo("To build the lab, run:")
    echo(f"  cd {folder}\n  dasklab {'doctor' if kind == 'proxmox' else 'up'}")
