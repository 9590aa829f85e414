"""Change a container's configuration by PVE's rules (pve-container, ``vmconfig_hotplug_pending``).

A running container takes nearly all changes at once. As on a real node, a NIC's new MTU changes the
configuration at once, and the device only at the next start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from minipve.config import container_nics
from minipve.config.container_nics import ContainerNic
from minipve.config.store import GuestConfig
from minipve.guests.lxc import cgroups, chroot, running, setup, user_ids
from minipve.network import links, rate, veths, vlans
from minipve.network.links import Log
from minipve.node.node import Node

_NEEDS_RESTART = {"arch", "cmode", "console", "debug", "entrypoint", "features", "ostype", "timezone", "tty"}
_LIMITS = {"memory", "swap", "cores", "cpulimit", "cpuunits"}


def stage(config: GuestConfig, new: dict[str, str], deleted: Iterable[str], reverted: Iterable[str]) -> None:
    """Make changes of a configuration pending: ``new`` values, deletions, and reverted pending changes."""
    for name in [*reverted, *deleted, *new]:
        config.pending.pop(name, None)
        config.deleted = [key for key in config.deleted if key != name]
    config.deleted += [name for name in deleted if name in config.options]
    config.pending |= {name: value for name, value in new.items() if config.options.get(name) != value}


def apply_stopped(config: GuestConfig) -> None:
    """Apply all pending changes of a stopped container. The next start shows whether they work."""
    for name in config.deleted:
        config.options.pop(name, None)
    config.options |= config.pending
    config.pending, config.deleted = {}, []


@dataclass(frozen=True)
class RunningContainer:
    """A running container whose configuration is changed; ``init_pid`` is its first process."""

    node: Node
    vmid: int
    init_pid: int
    log: Log

    def apply(self, config: GuestConfig) -> dict[str, str]:
        """Apply the pending changes that need no restart. Returns PVE's error text for each that failed."""
        errors: dict[str, str] = {}
        before = dict(config.options)
        for name in [*config.deleted, *config.pending]:
            if name in _NEEDS_RESTART:
                continue
            new = config.pending.get(name)
            if _is_nic(name):
                problem = self._change_nic(int(name[3:]), before.get(name), new)
                errors |= {name: f"unable to hotplug {name}: {problem}"} if problem else {}
            if name not in errors:
                config.options.pop(name, None)
                config.options |= {} if new is None else {name: new}
            config.pending.pop(name, None)
            config.deleted = [key for key in config.deleted if key != name]
        if any(config.options.get(name) != before.get(name) for name in _LIMITS):
            paths = self.node.paths
            cgroups.apply(self.vmid, paths, cgroups.limits(config.options, cgroups.version()))
        if setup.interfaces(before) != setup.interfaces(config.options):
            first_id = user_ids.of_root(config.options, self.node.paths)
            chroot.within_running(self.init_pid, lambda: setup.write_interfaces(config.options, first_id))
        return errors

    def _change_nic(self, index: int, old_text: str | None, new_text: str | None) -> str | None:
        """Change a NIC of the container. Returns PVE's error text, with its line breaks, if that fails."""
        old, new = (None if text is None else container_nics.parse(text) for text in (old_text, new_text))
        device = container_nics.host_name(self.vmid, index)
        if new is None:
            links.unplug([device])
            return None
        if problem := _bridge_problem(old, new):
            return problem
        with running.locks[self.node.paths.run, self.vmid]:
            self._apply_nic(index, device, old, new)
        return None

    def _apply_nic(self, index: int, device: str, old: ContainerNic | None, new: ContainerNic) -> None:
        if old is None or container_nics.needs_new_device(old, new) or not links.exists(device):
            links.unplug([device])
            veths.plug(self.vmid, index, new, self.init_pid, self.log)
            veths.change_addresses(self.init_pid, None, new)
            return
        if old.connection != new.connection:
            veths.connect(device, new)
        if old.rate_bytes != new.rate_bytes:
            rate.apply(device, index, new, self.log)
        if (old.addresses, old.gateway, old.gateway6) != (new.addresses, new.gateway, new.gateway6):
            veths.change_addresses(self.init_pid, old, new)


def _bridge_problem(old: ContainerNic | None, new: ContainerNic) -> str | None:
    """Return PVE's error text if the new NIC cannot be attached to its bridge, or None.

    The texts differ for a device that stays and only moves to another bridge: PVE reports them through one
    more ``die``, which adds a line break.
    """
    if not new.bridge:
        return None
    device_stays = old is not None and not container_nics.needs_new_device(old, new)
    if old and device_stays and old.connection == new.connection:
        return None
    if not links.exists(new.bridge) and not device_stays:
        return f"bridge '{new.bridge}' does not exist\n"
    if new.link_down:
        return None
    if not links.exists(new.bridge):
        return f"interface {new.bridge} does not exist\n\n"
    if problem := vlans.problem(new.bridge, new.tag, new.trunks):
        return problem + ("\n\n" if device_stays else "\n")
    return None


def _is_nic(name: str) -> bool:
    return re.fullmatch(r"net\d+", name) is not None


def apply(node: Node, vmid: int, config: GuestConfig, log: Log) -> dict[str, str]:
    """Apply all pending changes of a stopped container, and those that need no restart of a running one.

    Returns:
        PVE's error text for each option that could not be changed.
    """
    init_pid = running.init_pid(vmid, node.paths)
    if init_pid is None:
        apply_stopped(config)
        return {}
    return RunningContainer(node, vmid, init_pid, log).apply(config)
