"""The host side of a machine's NICs: a tap each, on its bridge, at its rate."""

from __future__ import annotations

import os
from collections.abc import Callable

from minipve.config import nics
from minipve.config.nics import Nic
from minipve.network import net, rate
from minipve.process import MachineError

Log = Callable[[str], None]
LEAST_MTU = 576  # of IP


def plug(vmid: int, index: int, nic: Nic, log: Log) -> None:
    """Make the host side of a NIC: its tap, on its bridge, at its rate."""
    if nic.bridge is None:
        log(f"WARN: net{index}: no bridge given, QEMU's own NAT is used")
        return
    if nic.tag:
        raise MachineError(f"no physical interface on bridge '{nic.bridge}'")  # PVE's text for such bridges
    tap, bridge_mtu = nics.tap_name(vmid, index), net.bridge_mtu(nic.bridge)
    net.plug(tap, nic.bridge, _mtu(index, nic, bridge_mtu, log) or bridge_mtu)
    set_rate(tap, index, nic, log)


def _mtu(index: int, nic: Nic, bridge_mtu: int, log: Log) -> int:
    """The MTU that a NIC has been given, 0 for the bridge's; PVE's text for one that it cannot have."""
    netdev = f"netdev net{index}"
    if nic.mtu and nic.model != "virtio":
        log(f"WARN: {netdev}: ignoring MTU '{nic.mtu}', not using VirtIO")
        return 0
    if nic.mtu > bridge_mtu:
        raise MachineError(
            f"{netdev}: MTU '{nic.mtu}' is bigger than the bridge MTU '{bridge_mtu}' - adjust the MTU for"
            " the network device in the VM configuration, while ensuring that the bridge is configured"
            " as desired."
        )
    if 1 < nic.mtu < LEAST_MTU:
        raise MachineError(f"{netdev}: MTU '{nic.mtu}' is smaller than the IP minimum MTU '{LEAST_MTU}'")
    return nic.mtu if nic.mtu > 1 else 0


def set_rate(tap: str, index: int, nic: Nic, log: Log) -> None:
    """Apply a NIC's rate and say how its guest's own traffic is limited."""
    method = rate.set_rate(tap, nic.rate_bytes)
    if method:
        log(f"net{index}: rate {nic.rate_mib} MiB/s to the guest by htb, from the guest by {method}")


def vhost_works() -> bool:
    """Whether the kernel's virtio back end can be used: the device must open, not only be there."""
    try:
        os.close(os.open("/dev/vhost-net", os.O_RDWR))
    except OSError:
        return False
    return True
