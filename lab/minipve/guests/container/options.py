"""The options of a container, and how PVE's rules change them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minipve.access import permissions
from minipve.access.permissions import Permit
from minipve.base.errors import ApiError, denied, parameter_error
from minipve.config import container_nics, drives, values
from minipve.config.container_nics import ContainerNic
from minipve.config.rules import schema
from minipve.config.rules.schema import LXC
from minipve.config.store import GuestConfig, check_line
from minipve.guests import shared
from minipve.guests.lxc import limits, rootfs, running, setup
from minipve.network import guest_ports, links
from minipve.network.links import Log
from minipve.node.node import Node

# The options of a container: the privileges to set them, their canonical form, what is not supported.

_GROUPS = {
    "VM.Config.CPU": "cores cpulimit cpuunits",
    "VM.Config.Memory": "memory swap",
    "VM.Config.Network": "hostname nameserver searchdomain",
}
_PRIVILEGES = {option: privilege for privilege, names in _GROUPS.items() for option in names.split()}
_ROOT_ONLY = (
    (re.compile(r"dev\d+"), "configuring device passthrough"),
    (re.compile(r"hookscript"), "changing the hookscript"),
)
_UNSUPPORTED = re.compile(r"(?:mp|dev|unused)\d+|env|hookscript")
_ROOTFS_KEYS = {"volume", "size", "replicate"}
DEFAULT_ROOTFS_GIB = 4


def check(
    permit: Permit,
    vmid: int,
    pool: str | None,
    new: Mapping[str, str],
    current: Mapping[str, str],
    deleted: Iterable[str] = (),
) -> None:
    """Raise 403 unless the caller may set and delete these options. `volume_access` checks volumes.

    Args:
        permit: the caller's permissions.
        vmid: the container.
        pool: the pool of a new container.
        new: the options to set.
        current: the options that the container has.
        deleted: the options to delete.
    """
    if permit.is_root:
        return
    for name, value in [*new.items(), *dict.fromkeys(deleted, "").items()]:
        if name == "lock":
            raise ApiError("only root can set 'lock' config")
        if name == "features":
            _check_features(permit, vmid, pool, value, current)
        elif (
            name == "tags"
        ):  # checked on the container itself; privileges on a new container's pool do not count
            permit.require(f"/vms/{vmid}", ["VM.Config.Options"])
        elif refusal := next((text for pattern, text in _ROOT_ONLY if pattern.fullmatch(name)), None):
            raise denied(f"{refusal} is only allowed for root@pam")
        else:
            permit.need_vm(vmid, pool, [privilege(name)])
        if _is_nic(name):
            _check_bridge(permit, current.get(name, ""), permissions.PRESENT_BRIDGE)
            _check_bridge(permit, value, permissions.BRIDGE)
        elif _is_mount(name) and value:
            _check_mount(name, value)


def privilege(name: str) -> str:
    """Return the privilege that an option requires, for options that require exactly one."""
    if _is_nic(name):
        return "VM.Config.Network"
    return "VM.Config.Disk" if _is_mount(name) else _PRIVILEGES.get(name, "VM.Config.Options")


def _is_nic(name: str) -> bool:
    return re.fullmatch(r"net\d+", name) is not None


def _is_mount(name: str) -> bool:
    return re.fullmatch(r"rootfs|mp\d+", name) is not None


def _check_bridge(permit: Permit, text: str, right: permissions.Right) -> None:
    if text:
        nic = container_nics.parse(text)
        shared.check_bridge(permit, nic.bridge, nic.tag, right)


def _check_mount(name: str, value: str) -> None:
    """Raise 403 for a mount point that is not a volume but a folder or a device of the host."""
    volume = schema.parse_option(name, value, LXC)["volume"]
    if volume.startswith("/"):
        kind = "device" if volume.startswith("/dev/") else "bind"
        raise denied(f"mount point type {kind} is only allowed for root@pam")


def _check_features(
    permit: Permit, vmid: int, pool: str | None, text: str, current: Mapping[str, str]
) -> None:
    """Nesting of an unprivileged container requires VM.Allocate. Only root@pam may set other features."""
    if current.get("unprivileged") != "1":
        raise denied("changing feature flags for privileged container is only allowed for root@pam")
    old, new = values.features(current), schema.parse_option("features", text, LXC) if text else {}
    changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
    if changed - {"nesting"}:
        raise denied("changing feature flags (except nesting) is only allowed for root@pam")
    if changed:
        permit.need_vm(vmid, pool, ["VM.Allocate"])


def refuse(options: Mapping[str, str]) -> None:
    """Raise 400 for options that are not supported; the error names what is supported."""
    errors = {name: text for name, value in options.items() if (text := _problem(name, value))}
    if errors:
        raise parameter_error(**errors)


def _problem(name: str, value: str) -> str | None:
    if _UNSUPPORTED.fullmatch(name):
        return "not supported here"
    if name == "arch" and value not in ("", "amd64"):
        return f"'{value}' is not supported here, only amd64"
    if name == "features" and any(
        on == "1" for key, on in values.features({"features": value}).items() if key != "nesting"
    ):
        return "only nesting is supported here"
    if name == "rootfs" and value and set(schema.parse_option("rootfs", value, LXC)) - _ROOTFS_KEYS:
        return "only a volume and its size are supported here"
    return None


def normalise(params: Mapping[str, Any]) -> dict[str, str]:
    """Return options as they are stored: NICs in canonical form with a MAC address, tags sorted."""
    options = {name: str(value) for name, value in params.items()}
    for name, value in options.items():
        check_line(name, value)
        if _is_nic(name):
            options[name] = container_nics.canonical(value)
        elif name == "tags":
            options[name] = shared.tags(value)
    return options


def new_rootfs_bytes(rootfs: str) -> int:
    """Return the size of the root file system that a ``rootfs`` option requests (``local:4``: 4 GiB).

    Raises:
        ApiError: it requests something other than a new volume. The message is PVE's if PVE has one.
    """
    volume = schema.parse_option("rootfs", rootfs, LXC)["volume"]
    if volume.startswith("/"):
        raise denied("mount point type bind is only allowed for root@pam")
    store, colon, size = volume.partition(":")
    if not colon:
        raise ApiError(
            "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651."
        )
    drives.check_exists(store)
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", size):
        drives.parse_volume_id(volume)
        raise parameter_error(rootfs="existing volumes are not supported here, give a size in GiB: local:4")
    return drives.checked_size(int(float(size) * 2**30))


def rootfs_text(volid: str, size: int) -> str:
    """Return the option ``rootfs`` as it is stored."""
    return f"{volid},size={drives.size_text(size)}"


def rootfs_volume(options: Mapping[str, str]) -> str:
    """Return the volume ID of a container's root file system."""
    return schema.parse_option("rootfs", options["rootfs"], LXC)["volume"]


def rootfs_bytes(options: Mapping[str, str]) -> int:
    """Return the configured size of a container's root file system."""
    text = options.get("rootfs", "")
    return drives.size_bytes(schema.parse_option("rootfs", text, LXC).get("size", "0")) if text else 0


def check_changes(new: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise 500 for changes that an existing container does not allow, with PVE's message if PVE has one."""
    for name, value in sorted(new.items()):
        if name == "rootfs" and schema.parse_option(name, value, LXC)["volume"] != rootfs_volume(options):
            raise ApiError("rootfs: another volume is not supported here")
        if name == "unprivileged":
            raise ApiError("unable to modify read-only option: 'unprivileged'")
        if _is_nic(name):
            guest_ports.check_mtu(int(name[3:]), container_nics.parse(value))


def check_deletions(names: Iterable[str], config: GuestConfig) -> None:
    """Raise 500 with PVE's message if one of the options to delete is required for every container."""
    for name in {*config.options, *config.pending} & set(names):
        if name in ("memory", "ostype", "rootfs"):
            raise ApiError(f"unable to delete required option '{name}'")
        if name == "unprivileged":
            raise ApiError(f"unable to delete read-only option: '{name}'")


# Change a container's configuration by PVE's rules (pve-container, `vmconfig_hotplug_pending`).
#
# A running container takes nearly all changes at once. As on a real node, a NIC's new MTU changes the
# configuration at once, and the device only at the next start.

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
            if _names_nic(name):
                problem = self._change_nic(int(name[3:]), before.get(name), new)
                errors |= {name: f"unable to hotplug {name}: {problem}"} if problem else {}
            if name not in errors:
                config.options.pop(name, None)
                config.options |= {} if new is None else {name: new}
            config.pending.pop(name, None)
            config.deleted = [key for key in config.deleted if key != name]
        if any(config.options.get(name) != before.get(name) for name in _LIMITS):
            paths = self.node.paths
            limits.apply(self.vmid, paths, limits.limits(config.options, limits.version()))
        if setup.interfaces(before) != setup.interfaces(config.options):
            first_id = limits.of_root(config.options, self.node.paths)
            rootfs.within_running(self.init_pid, lambda: setup.write_interfaces(config.options, first_id))
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
            guest_ports.plug_veth(self.vmid, index, new, self.init_pid, self.log)
            guest_ports.change_addresses(self.init_pid, None, new)
            return
        if old.connection != new.connection:
            guest_ports.connect(device, new)
        if old.rate_bytes != new.rate_bytes:
            guest_ports.apply_rate(device, index, new, self.log)
        if (old.addresses, old.gateway, old.gateway6) != (new.addresses, new.gateway, new.gateway6):
            guest_ports.change_addresses(self.init_pid, old, new)


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
    if problem := guest_ports.vlan_problem(new.bridge, new.tag, new.trunks):
        return problem + ("\n\n" if device_stays else "\n")
    return None


def _names_nic(name: str) -> bool:
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
