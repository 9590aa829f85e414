"""``dasklab plan``: what ``dasklab up`` would do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from dasklab.console.lab.dry_run import PLAN_OPTIONS, plan_variables, print_plan
from dasklab.console.lab.playbooks import answer
from dasklab.console.options import inventory_option
from dasklab.machines import local_host
from dasklab.machines.inventory.variables import open_lab
from dasklab.terminal import echo


@dataclass(frozen=True)
class PlannedCall:
    """An API call that `dasklab up` would make."""

    method: str
    path: str
    params: dict[str, str | int]
    why: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@inventory_option
def plan(as_json: bool, inventory: Path) -> None:
    """Print the API calls that `dasklab up` would make."""
    lab = open_lab(inventory)
    if as_json:
        from dasklab.model.forms.json_output import checked, to_json

        planned = answer("provision.yml", lab, "plan_file", PLAN_OPTIONS, plan_variables(lab))
        calls = checked(planned, list[PlannedCall])
        echo(to_json(calls, list[PlannedCall]))
    else:
        print_plan(lab)
    local_host.require(lab)
