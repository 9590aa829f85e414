"""``dasklab inspect``: the lab that the inventory describes, host by host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click
from pydantic import Field

from dasklab.console.options import inventory_option
from dasklab.machines import ssh
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.groups import REQUIRED
from dasklab.machines.inventory.variables import open_lab
from dasklab.model.settings.nic import LAB_SLOT
from dasklab.terminal import echo


@dataclass(frozen=True)
class NicRow:
    """A virtual NIC as the inventory requests it."""

    model: str
    mac: str
    bridge: str
    address: str | None
    rate_mbit: Annotated[float, Field(description="0 is no cap.")]


@dataclass(frozen=True)
class HostRow:
    """A host of `dasklab inspect`."""

    host: str
    groups: list[str]
    ssh: Annotated[str, Field(description="user@address.")]
    kind: Annotated[
        str | None, Field(description="vm or container; null for a machine that the lab did not create.")
    ]
    vmid: int | None
    node: str | None
    cores: int | None
    memory_mb: int | None
    nics: list[NicRow]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@inventory_option
def inspect(as_json: bool, inventory: Path) -> None:
    """Show hosts, groups, addresses and NICs as the inventory requests them.

    It asks neither endpoint nor hosts; `dasklab status` shows what runs.
    """
    from dasklab.model.forms.json_output import to_json
    from dasklab.terminal import print_table

    lab = open_lab(inventory)
    hosts = list(_hosts(lab))
    if as_json:
        echo(to_json(hosts, list[HostRow]))
        return

    heads = ("host", "groups", "kind", "VMID", "node", "ssh", "lab link", "lab address")
    print_table(heads, map(_cells, hosts))


def _cells(host: HostRow) -> list[str]:
    nic = host.nics[LAB_SLOT] if len(host.nics) > LAB_SLOT else None
    cap = f", {nic.rate_mbit:g} Mbit/s" if nic and nic.rate_mbit else ""
    return [
        host.host,
        ", ".join(host.groups),
        host.kind or "exists",
        str(host.vmid or ""),
        host.node or "",
        host.ssh,
        f"{nic.model} on {nic.bridge}{cap}" if nic else "",
        (nic.address or "") if nic else "",
    ]


def _hosts(lab: Inventory) -> Iterator[HostRow]:
    groups = [name for name in REQUIRED if name != "lab"]
    for name in lab.hosts():
        guest = lab.optional(name, "guest") or {}
        yield HostRow(
            host=name,
            groups=[group for group in groups if name in lab.hosts(group)],
            ssh=ssh.login(lab, name),
            **{key: guest.get(key) for key in ("kind", "vmid", "node", "cores", "memory_mb")},
            nics=[
                NicRow(
                    model=nic["model"],
                    mac=nic["mac"],
                    bridge=nic["bridge"],
                    address=nic.get("address"),
                    rate_mbit=nic.get("rate_mbit") or 0,
                )
                for nic in guest.get("nics", [])
            ],
        )
