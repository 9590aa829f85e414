"""Changes of a container's configuration: what is in force at once, what waits for a restart.

The rules are PVE's (pve-container, ``vmconfig_hotplug_pending``), as a real node showed them: nearly all is
taken at once; a NIC's new MTU is in the configuration, and on the device only after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from minipve.config import container_nics
from minipve.config.container_nics import ContainerNic
from minipve.config.store import GuestConfig
from minipve.lxc import cgroups, commands, running, setup
from minipve.network import links, rate, veths
from minipve.node import Node

_WAITING = {"arch", "cmode", "console", "debug", "entrypoint", "features", "ostype", "timezone", "tty"}
_LIMITS = {"memory", "swap", "cores", "cpulimit", "cpuunits"}
Log = Callable[[str], None]


def stage(
    config: GuestConfig, wanted: dict[str, str], deleted: Iterable[str], reverted: Iterable[str]
) -> None:
    """Put what is asked for among the pending changes (pure)."""
    for name in [*reverted, *deleted, *wanted]:
        config.pending.pop(name, None)
        config.deleted = [key for key in config.deleted if key != name]
    config.deleted += [name for name in deleted if name in config.options]
    config.pending |= {name: value for name, value in wanted.items() if config.options.get(name) != value}


def apply_stopped(config: GuestConfig) -> None:
    """Everything pending comes into force; whether it can work is seen at the next start."""
    for name in config.deleted:
        config.options.pop(name, None)
    config.options |= config.pending
    config.pending, config.deleted = {}, []


@dataclass(frozen=True)
class Live:
    """A running container, to be changed; ``pid`` is its first process."""

    node: Node
    vmid: int
    pid: int
    log: Log

    def apply(self, config: GuestConfig) -> dict[str, str]:
        """What a running container takes comes into force; PVE's text for each option that failed to."""
        errors: dict[str, str] = {}
        before = dict(config.options)
        for name in [*config.deleted, *config.pending]:
            if name in _WAITING:
                continue
            new = config.pending.get(name)
            if _is_net(name):
                text = self._net(int(name[3:]), before.get(name), new)
                errors |= {name: f"unable to hotplug {name}: {text}"} if text else {}
            if name not in errors:
                config.options.pop(name, None)
                config.options |= {} if new is None else {name: new}
            config.pending.pop(name, None)
            config.deleted = [key for key in config.deleted if key != name]
        if any(config.options.get(name) != before.get(name) for name in _LIMITS):
            paths = self.node.paths
            cgroups.apply(self.vmid, paths, cgroups.limits(config.options, cgroups.version()))
        if setup.interfaces(before) != setup.interfaces(config.options):
            first_id = commands.owner(config.options, self.node.paths)
            commands.within_running(self.pid, lambda: setup.networks(config.options, first_id))
        return errors

    def _net(self, index: int, old: str | None, new: str | None) -> str | None:
        """Carry a NIC's change to the container; a complaint, with its line breaks, when it cannot be."""
        was, wanted = (None if text is None else container_nics.parse(text) for text in (old, new))
        device = container_nics.host_name(self.vmid, index)
        if wanted is None:
            links.unplug([device])
            return None
        if text := _complaint(was, wanted):
            return text
        with running.locks[self.node.paths.run, self.vmid]:
            self._plug(index, device, was, wanted)
        return None

    def _plug(self, index: int, device: str, was: ContainerNic | None, wanted: ContainerNic) -> None:
        if was is None or container_nics.needs_new_device(was, wanted) or not links.exists(device):
            links.unplug([device])
            veths.plug(self.vmid, index, wanted, self.pid, self.log)
            veths.change_addresses(self.pid, None, wanted)
            return
        if (was.bridge, was.link_down) != (wanted.bridge, wanted.link_down):
            veths.connect(device, wanted)
        if was.rate_bytes != wanted.rate_bytes:
            rate.apply(device, index, wanted, self.log)
        if (was.addresses, was.gateway, was.gateway6) != (wanted.addresses, wanted.gateway, wanted.gateway6):
            veths.change_addresses(self.pid, was, wanted)


def _complaint(was: ContainerNic | None, wanted: ContainerNic) -> str | None:
    """What a node says of a bridge that a NIC cannot be plugged into.

    A device that is moved is put back first when that fails, and the text has gone through one more ``die``.
    """
    if not wanted.bridge:
        return None
    moved = was is not None and not container_nics.needs_new_device(was, wanted)
    if (
        was
        and moved
        and (was.bridge, was.tag, was.link_down) == (wanted.bridge, wanted.tag, wanted.link_down)
    ):
        return None
    if not links.exists(wanted.bridge) and not moved:
        return f"bridge '{wanted.bridge}' does not exist\n"
    if wanted.link_down:
        return None
    if not links.exists(wanted.bridge):
        return f"interface {wanted.bridge} does not exist\n\n"
    if wanted.tag:
        return links.no_vlans(wanted.bridge) + ("\n\n" if moved else "\n")
    return None


def _is_net(name: str) -> bool:
    return re.fullmatch(r"net\d+", name) is not None


def apply(node: Node, vmid: int, config: GuestConfig, log: Log) -> dict[str, str]:
    """Bring into force what the container's state allows."""
    pid = running.init_pid(vmid, node.paths)
    if pid is None:
        apply_stopped(config)
        return {}
    return Live(node, vmid, pid, log).apply(config)
