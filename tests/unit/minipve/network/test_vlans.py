"""VLANs of ports on VLAN-aware bridges."""

from __future__ import annotations

import pytest
from minipve.network import guest_ports


@pytest.mark.parametrize(
    ("tag", "trunks", "added"),
    [
        (5, "", ["5 pvid untagged"]),
        (None, "", ["1 pvid untagged", "2-4094"]),
        (None, "7;10-20", ["7", "10-20"]),
        (5, "7", ["5 pvid untagged", "7"]),
    ],
)
def test_port_gets_its_vlans(tag: int | None, trunks: str, added: list[str]) -> None:
    first, *rest = (" ".join(command) for command in guest_ports.commands("tap100i0", tag, trunks))
    assert first == "bridge vlan del dev tap100i0 vid 1-4094"
    assert rest == [f"bridge vlan add dev tap100i0 vid {vids}" for vids in added]
