"""``dasklab destroy``: remove the lab."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dasklab.console.lab.locking import locked
from dasklab.console.lab.playbooks import answer, run_endpoint_program
from dasklab.console.lab.target import open_target
from dasklab.console.options import inventory_option
from dasklab.machines.endpoint import presence
from dasklab.terminal import echo


@click.command()
@inventory_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def destroy(inventory: Path, yes: bool) -> None:
    """Remove everything that carries this lab's tag.

    That is machines, template, bridge and images. A local endpoint is stopped as well. Results stay.
    """
    lab = open_target(inventory)
    name = lab.optional(lab.hosts()[0], "lab_name")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove the machines of lab {name!r}? Results stay", abort=True)
    with locked(lab, reset=False):
        if presence.never_started(lab):
            run_endpoint_program(lab, "endpoint_stop")  # what a first start that broke off left
            existed = False
        else:
            calls = answer("destroy.yml", lab, "plan_file", output=None)
            existed = bool(calls) or lab.has(lab.hosts()[0], "endpoint_stop")
    echo(f"Removed lab {name!r}. Results stay." if existed else f"Lab {name!r} has nothing to remove.")
