"""Role proxmox_endpoint: an endpoint that is started on demand. It runs on the controller."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.machines.inventory.ansible_inventory import Inventory

testinfra_hosts = ["local://"]


@pytest.fixture(scope="module")
def node(inventory: Inventory) -> str:
    """The first node, whose variables describe the endpoint."""
    nodes = inventory.hosts("hypervisors")
    if not nodes or not inventory.optional(nodes[0], "endpoint_start"):
        pytest.skip("this inventory's endpoint is not started on demand")
    return nodes[0]


def test_endpoint_listens(host: Any, inventory: Inventory, node: str) -> None:
    endpoint = inventory.value(node, "proxmox")
    assert host.socket(f"tcp://{endpoint['host']}:{endpoint['port']}").is_listening


@pytest.mark.parametrize(
    ("kind", "image"), [("vm", "proxmox_image"), ("container", "proxmox_container_image")]
)
def test_image_of_the_guests_is_built(
    host: Any, inventory: Inventory, node: str, kind: str, image: str
) -> None:
    if kind not in {inventory.value(name, "guest")["kind"] for name in inventory.hosts("virtual_machines")}:
        pytest.skip(f"no guest is a {kind}")
    assert host.file(inventory.value(node, image)["file"]).is_file
