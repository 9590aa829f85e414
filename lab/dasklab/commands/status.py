"""``dasklab status``: the state of the lab."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click
from pydantic import Field

from dasklab.console.lab.playbooks import answer, play
from dasklab.console.options import inventory_option
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.variables import open_lab
from dasklab.terminal import echo


@dataclass(frozen=True)
class StatusRow:
    """A host of `dasklab status`; null is what nobody knows."""

    host: str
    vmid: int | None
    node: str | None
    status: Annotated[str | None, Field(description="Of the machine, as the endpoint reports it.")]
    link: Annotated[str | None, Field(description="The lab NIC.")]
    answers: Annotated[bool, Field(description="Whether the host answered.")]
    dask: Annotated[str | None, Field(description="The version that is installed.")]
    service: Annotated[str | None, Field(description="The state of the scheduler's or the worker's service.")]
    impaired: Annotated[int | None, Field(description="Number of queues that delay, drop or limit.")]
    differences: Annotated[list[str] | None, Field(description="How the link differs from what the lab set.")]
    captures: Annotated[int | None, Field(description="Number of captures that run.")]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@inventory_option
def status(as_json: bool, inventory: Path) -> None:
    """Show the state of machines, links, Dask cluster and captures."""
    lab = open_lab(inventory)
    presence.require_endpoint(lab)
    if not as_json:
        play("status.yml", lab)
        return
    from dasklab.model.forms.json_output import checked, to_json

    hosts = checked(answer("status.yml", lab, "status_file"), list[StatusRow])
    echo(to_json(hosts, list[StatusRow]))
