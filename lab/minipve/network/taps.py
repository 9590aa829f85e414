"""The host end of a virtual machine's NICs: one tap each, on its bridge, with its rate cap."""

from __future__ import annotations

import os

from minipve.base.process import MachineError
from minipve.config import nics
from minipve.config.nics import Nic
from minipve.network import links, rate, vlans
from minipve.network.links import Log

MIN_MTU = 576  # the smallest that IP allows


def plug(vmid: int, index: int, nic: Nic, log: Log) -> None:
    """Create the tap of a NIC, attach it to its bridge and set its rate cap."""
    if nic.bridge is None:
        log(f"WARN: net{index}: no bridge given, QEMU's own NAT is used")
        return
    tap, bridge_mtu = nics.tap_name(vmid, index), links.bridge_mtu(nic.bridge)
    if problem := vlans.problem(nic.bridge, nic.tag, nic.trunks):
        raise MachineError(problem)
    queues = nic.queues if nic.model == "virtio" else 1
    links.plug_tap(tap, nic.bridge, _own_mtu(index, nic, bridge_mtu, log) or bridge_mtu, queues)
    vlans.apply(tap, nic.bridge, nic.tag, nic.trunks)
    rate.apply(tap, index, nic, log)


def _own_mtu(index: int, nic: Nic, bridge_mtu: int, log: Log) -> int:
    """Return the MTU that the configuration sets for a NIC, or 0 if it takes the bridge's.

    Raises:
        MachineError: the NIC cannot have this MTU (PVE's text).
    """
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
    if 1 < nic.mtu < MIN_MTU:
        raise MachineError(f"{netdev}: MTU '{nic.mtu}' is smaller than the IP minimum MTU '{MIN_MTU}'")
    return nic.mtu if nic.mtu > 1 else 0


def vhost_works() -> bool:
    """Whether the kernel's virtio back end can be used. The device may exist and still not open."""
    try:
        os.close(os.open("/dev/vhost-net", os.O_RDWR))
    except OSError:
        return False
    return True
