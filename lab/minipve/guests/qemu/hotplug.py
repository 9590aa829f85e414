"""Change a NIC of a running machine, as Proxmox VE does.

Rate cap, link state and bridge change in place. A change of model, MAC address, queues or MTU unplugs the
old NIC and plugs in a new one.
"""

from __future__ import annotations

import time

from minipve.base.paths import Paths
from minipve.base.process import MachineError
from minipve.config import nics
from minipve.config.nics import Nic
from minipve.guests.qemu import channel, command_line, running
from minipve.guests.qemu.qmp import Qmp
from minipve.network import links, rate, taps, vlans
from minipve.network.links import Log

UNPLUG_TIMEOUT_S = 6.0


def change_nic(
    vmid: int, index: int, old: str | None, new: str | None, paths: Paths, log: Log = lambda _line: None
) -> None:
    """Change ``net<index>`` of a running machine from one configuration string to another; None: no NIC."""
    if running.running_pid(vmid, paths) is None:
        raise MachineError(f"VM {vmid} not running")
    before, after = (None if text is None else nics.parse(text) for text in (old, new))
    if before is not None and after is not None and not nics.needs_new_device(before, after):
        _adjust(vmid, index, before, after, paths, log)
        return
    if before is not None:
        _unplug(vmid, index, paths)
    if after is not None:
        _plug(vmid, index, after, paths, log)


def _adjust(vmid: int, index: int, old: Nic, new: Nic, paths: Paths, log: Log) -> None:
    """Change a NIC in place. While it moves to another bridge, its link is down for the guest."""
    tap, monitor = nics.tap_name(vmid, index), Qmp(vmid, paths)
    if new.bridge is not None and new.connection != old.connection:
        if not links.exists(new.bridge):
            raise MachineError(f"interface {new.bridge} does not exist")
        if problem := vlans.problem(new.bridge, new.tag, new.trunks):
            raise MachineError(problem)
        monitor.execute("set_link", {"name": f"net{index}", "up": False})
        links.plug_tap(tap, new.bridge)
        vlans.apply(tap, new.bridge, new.tag, new.trunks)
    if new.bridge is not None and new.rate_mib != old.rate_mib:
        rate.apply(tap, index, new, log)
    if (new.link_down, new.connection) != (old.link_down, old.connection):
        monitor.execute("set_link", {"name": f"net{index}", "up": not new.link_down})


def _unplug(vmid: int, index: int, paths: Paths) -> None:
    name, monitor = f"net{index}", Qmp(vmid, paths)
    monitor.execute("device_del", {"id": name})
    deadline = time.monotonic() + UNPLUG_TIMEOUT_S
    while name in _plugged(monitor):
        if time.monotonic() > deadline:
            raise MachineError(f"error on hot-unplugging device '{name}' - still busy in guest?")
        time.sleep(0.1)
    monitor.execute("netdev_del", {"id": name})
    links.unplug([nics.tap_name(vmid, index)])


def _plugged(monitor: Qmp) -> set[str]:
    rows = monitor.execute("qom-list", {"path": "/machine/peripheral"})
    return {channel.member(row, "name", str) for row in (rows if isinstance(rows, list) else [])}


def _plug(vmid: int, index: int, nic: Nic, paths: Paths, log: Log) -> None:
    monitor = Qmp(vmid, paths)
    taps.plug(vmid, index, nic, log)
    try:
        host = command_line.netdev_options(vmid, index, nic, {}, taps.vhost_works())
        monitor.execute("netdev_add", _typed(host))
        try:
            monitor.execute("device_add", command_line.device_options(index, nic))
        except MachineError:
            monitor.execute("netdev_del", {"id": f"net{index}"})
            raise
    except MachineError:
        links.unplug([nics.tap_name(vmid, index)])
        raise
    if nic.link_down:
        monitor.execute("set_link", {"name": f"net{index}", "up": False})


def _typed(options: dict[str, str]) -> dict[str, object]:
    """Convert values to the types that ``netdev_add`` requires."""
    booleans = {"on": True, "off": False}
    return {
        key: booleans.get(value, int(value) if value.isdigit() else value) for key, value in options.items()
    }
