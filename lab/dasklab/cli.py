"""The command ``dasklab``. Its subcommands are the modules of ``dasklab.commands`` that are listed here.

The command NAME is the function NAME in the module ``dasklab.commands.NAME``, and the function's docstring is
its help. To add a command, write that module and add its name to ``COMMANDS``; to remove one, name its
replacement in ``dasklab.replaced``. A module is imported when its command or an overview is needed; what
takes long to import (pandas, Ansible) it imports when it runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

import click

from dasklab.console.options import INVENTORY
from dasklab.console.path_types import UserPath
from dasklab.paths import make_environment_absolute
from dasklab.terminal import CommandGroup, print_warnings, treat_sigterm_as_ctrl_c

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Build a lab": ("init", "doctor", "plan", "up", "inspect", "graph", "status", "destroy"),
    "Use its hosts": ("ssh", "tc", "capture", "top", "dashboard"),
    "Run experiments": ("baseline", "run"),
    "Read results": ("results", "report", "history"),
    "Explain and predict": ("record", "explain", "check", "whatif", "twin"),
    "Use other programs": ("wire", "minipve"),
}
"""Title in the help -> the commands below it."""


class Commands(CommandGroup):
    """The commands of the table, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(importlib.import_module(f"dasklab.commands.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, names in COMMANDS.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            rows = [(name.ljust(width), summary(command)) for name, command in commands if command]
            with formatter.section(title):
                formatter.write_dl(rows)


def summary(command: click.Command) -> str:
    """Return the first line of a command's help."""
    return (command.help or "").partition("\n")[0]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(*INVENTORY, type=UserPath(), help="Inventory of the lab; may also follow the command.")
@click.version_option(package_name="dasklab", prog_name="dasklab")
@click.pass_context
def main(context: click.Context, inventory: Path | None) -> None:
    """What does the network do to my Dask cluster, and where did the time go?

    Build a lab of five machines (client, scheduler, three workers) on Proxmox VE or on this machine, run
    experiments on its links, and read results with their uncertainty. Or explain the time of any Dask
    cluster.

    \b
    dasklab doctor          check what is missing, and print how to fix it
    dasklab up              build the lab and measure a baseline
    dasklab run nic_matrix  run an experiment
    dasklab report RUN      write its results as a page
    dasklab destroy         remove the lab; results stay
    """
    treat_sigterm_as_ctrl_c()
    print_warnings()
    make_environment_absolute()
    command = main.get_command(context, context.invoked_subcommand or "")
    if inventory and command and "inventory" not in [option.name for option in command.params]:
        raise click.UsageError(f"'{command.name}' takes no inventory.", context)
