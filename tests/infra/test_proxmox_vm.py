"""Role proxmox_vm: the lab's machines on a Proxmox VE endpoint."""

from __future__ import annotations

from typing import Any

from dasklab.model.settings.nic import DRIVERS, LAB_SLOT

testinfra_hosts = ["ansible://virtual_machines"]


def test_lab_link_is_the_requested_nic(
    host: Any, requested: dict[str, Any], described: dict[str, Any]
) -> None:
    nic = requested["guest"]["nics"][LAB_SLOT]
    [link] = host.interface(described["lab"]["name"]).link
    assert link["address"].upper() == nic["mac"].upper()
    assert described["lab"]["driver"] in DRIVERS[nic["model"]]
