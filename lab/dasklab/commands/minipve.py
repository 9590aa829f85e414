"""``dasklab minipve``: the program minipve, on the state folder of a lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from dasklab.console.options import inventory_option
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.settings.packages import PINS


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@inventory_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def minipve(inventory: Path, arguments: tuple[str, ...]) -> None:
    """Control the local Proxmox VE endpoint of this lab (minipve).

    All arguments go to minipve: dasklab minipve status, dasklab minipve --help.
    """
    lab = Inventory(inventory)
    state = str(lab.value(lab.hosts()[0], "lab_state_dir"))
    # As options, because MINIPVE_STATE in the environment may name an instance that is not this lab's.
    command = [sys.executable, "-m", "minipve", "--state", state, "--requirements", str(PINS), *arguments]
    sys.exit(subprocess.run(command, check=False).returncode)
