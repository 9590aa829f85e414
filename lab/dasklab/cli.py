"""The command ``dasklab``: the table of its commands.

A command's module is imported when it is used, so that ``--help`` and short commands stay quick.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from dasklab.commands.options import INVENTORY
from dasklab.path_types import UserPath
from dasklab.paths import anchor_environment
from dasklab.terminal import Group, print_warnings, terminate_as_ctrl_c

COMMANDS = {  # name: where it is, what it does
    "init": ("dasklab.commands.init:init", "Write the inventory of a new lab into FOLDER, for you to edit."),
    "doctor": (
        "dasklab.commands.machines:doctor",
        "Say what is missing here or on the Proxmox VE, and the line that mends it.",
    ),
    "plan": ("dasklab.commands.machines:plan", "Show what `up` would do to the machines; change nothing."),
    "up": ("dasklab.commands.machines:up", "Build the lab, or bring it to what the inventory says."),
    "graph": ("dasklab.commands.graph:graph", "Draw the topology of the lab: hosts, NICs, bridges."),
    "status": ("dasklab.commands.machines:status", "Say what is there: machines, links, cluster, captures."),
    "ssh": ("dasklab.commands.machines:ssh", "Open a shell on HOST, or run COMMAND there."),
    "destroy": ("dasklab.commands.machines:destroy", "Remove all that carries this lab's tag."),
    "baseline": (
        "dasklab.commands.machines:baseline",
        "Measure the lab as it is, once; say what was measured.",
    ),
    "run": ("dasklab.commands.run:run", "Run an experiment, or go on with a run that was interrupted."),
    "reproduce": (
        "dasklab.commands.reproduce:reproduce",
        "Run a cell of a stored run once more, from its seed; tell old beside new.",
    ),
    "results": ("dasklab.commands.results:results", "List, show, compare and export runs."),
    "history": (
        "dasklab.commands.history:history",
        "Keep chosen results per version of Dask, and tell regressions.",
    ),
    "report": ("dasklab.commands.report:report", "Write the report of one or more runs as one HTML page."),
    "explain": (
        "dasklab.commands.explain:explain",
        "Say where the time went, every second of every worker thread.",
    ),
    "whatif": (
        "dasklab.commands.whatif:whatif",
        "Foretell a change: the real Dask in virtual time, with a trial's own costs.",
    ),
    "card": (
        "dasklab.commands.sensitivity:card",
        "Say what the time of a run hangs on: what 1 % more of each thing would bring.",
    ),
    "advise": (
        "dasklab.commands.advise:advise",
        "Say which of Dask's settings help this workload on this network.",
    ),
    "wire": ("daskwire.terminal.cli:wire", "What Dask said, from packets alone."),
    "minipve": (
        "dasklab.commands.local_endpoint:minipve",
        "Run minipve, the local endpoint, on this lab's state.",
    ),
}


class Commands(Group):
    """The commands of the table, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command of that name."""
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        loaded: click.Command = getattr(importlib.import_module(module), attribute)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names with a line each, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(*INVENTORY, type=UserPath(), help="The inventory, as after a command that has one.")
@click.version_option(package_name="dasklab", prog_name="dasklab")
@click.pass_context
def main(context: click.Context, inventory: Path | None) -> None:
    """What does the network do to my Dask cluster?

    A lab of five machines (a client that also captures, a scheduler, three workers) on Proxmox VE or on
    this machine, that answers with numbers.

    \b
    dasklab doctor          what is missing here, and the line that mends it
    dasklab up              build the lab and measure a baseline
    dasklab run nic_matrix  an experiment
    dasklab report RUN      its answers, as a page
    dasklab destroy         leave nothing behind
    """
    terminate_as_ctrl_c()
    print_warnings()
    anchor_environment()
    command = main.get_command(context, context.invoked_subcommand or "")
    if inventory and command and "inventory" not in [option.name for option in command.params]:
        raise click.UsageError(f"'{command.name}' takes no inventory.", context)
