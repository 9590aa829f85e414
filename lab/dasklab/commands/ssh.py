"""``dasklab ssh``: a shell on a machine of the lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from dasklab.console.completion import complete_hosts
from dasklab.console.options import inventory_option
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.variables import open_lab
from dasklab.machines.ssh import command as ssh_command


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("host", shell_complete=complete_hosts)
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
    sys.exit(subprocess.run([*ssh_command(lab, host), *command], check=False).returncode)
