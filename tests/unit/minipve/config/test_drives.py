"""A VM's drive options."""

from __future__ import annotations

import pytest
from minipve.config import drives


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ({}, ""),
        ({"net1": "virtio", "net0": "virtio"}, "order=net0"),
        (
            {"scsi1": "local:1", "scsi0": "local:1", "ide2": "local:cloudinit", "net0": "virtio"},
            "order=scsi0;ide2;net0",
        ),
        ({"ide2": "none,media=cdrom", "virtio0": "local:1"}, "order=virtio0;ide2"),
    ],
)
def test_default_boot_order(options: dict[str, str], order: str) -> None:
    assert drives.default_boot(options) == order
