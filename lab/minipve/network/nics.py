"""A machine's NIC as its config says it: ``virtio=02:DA:...,bridge=vmbr1,rate=12.5``.

NICs are compared parsed, never as strings. Here too is the one conversion of ``rate``, whose unit is MiB/s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

INTEL = {
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
}
MODELS = INTEL | {"ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3"}


@dataclass(frozen=True)
class Nic:
    """One ``netN``; ``mac`` in upper case, ``rate_mib`` MiB/s or None; ``mtu``, ``queues`` 0 if not given."""

    model: str
    mac: str
    bridge: str | None = None
    rate_mib: float | None = None
    link_down: bool = False
    mtu: int = 0
    queues: int = 0

    @property
    def rate_bytes(self) -> int | None:
        """The rate as Proxmox VE hands it to tc, in bytes/s (pve-common Network.pm)."""
        return None if self.rate_mib is None else int(self.rate_mib * 1024 * 1024)


def parse(text: str) -> Nic:
    """A NIC from its config string, in any order of keys (pure)."""
    given = dict(part.partition("=")[::2] for part in text.split(","))
    model = next((key for key in given if key in MODELS), given.get("model", "virtio"))
    rate = float(given.get("rate") or 0)
    return Nic(
        model=model,
        mac=(given.get(model) or given.get("macaddr", "")).upper(),
        bridge=given.get("bridge"),
        rate_mib=rate or None,
        link_down=given.get("link_down") in ("1", "on", "yes", "true"),
        mtu=int(given.get("mtu") or 0),
        queues=int(given.get("queues") or 0),
    )


def of_config(config: Mapping[str, object]) -> dict[int, Nic]:
    """All NICs of a config, by index (pure)."""
    found = ((re.fullmatch(r"net(\d+)", key), value) for key, value in config.items())
    return {int(match[1]): parse(str(value)) for match, value in found if match}


def tap_name(vmid: int, index: int) -> str:
    """The host side of a NIC."""
    return f"tap{vmid}i{index}"
