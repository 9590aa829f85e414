"""A small lab as an inventory describes it, for tests of pure functions."""

from __future__ import annotations

from typing import Any

from dasklab.machines.inventory.topology import Lab


def vm(name: str, vmid: int) -> dict[str, Any]:
    prefix = f"02:DA:5C:{vmid // 256:02X}:{vmid % 256:02X}"
    subnet, host = divmod(vmid - 9090, 250)
    return {
        "name": name,
        "vmid": vmid,
        "node": "pve",
        "cores": 1,
        "memory_mb": 1024,
        "nics": [
            {"mac": f"{prefix}:00", "bridge": "vmbr0", "address": f"10.{77 + subnet}.0.{host}/24"},
            {"mac": f"{prefix}:01", "bridge": "vmbr1", "address": f"10.{77 + subnet}.1.{host}/24"},
        ],
    }


LAB = Lab.model_validate(
    {
        "name": "dasklab",
        "pool": "dasklab",
        "node": "pve",
        "storage": "local",
        "image_storage": "local",
        "image": {"file": "/cache/dasklab-1.qcow2"},
        "template_vmid": 9100,
        "ssh_public_key": "ssh-ed25519 AAAA dasklab",
        "bridges": ["vmbr1"],
        "guests": [vm("client", 9101), vm("worker-1", 9103)],
    }
)
