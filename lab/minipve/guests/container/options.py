"""The options of a container: the privileges to set them, their canonical form, what is not supported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from minipve.access import rights
from minipve.access.permit import Permit
from minipve.base.errors import ApiError, denied, parameter_error
from minipve.config import container_nics, values, volume_ids
from minipve.config.rules import schema
from minipve.config.rules.kinds import LXC
from minipve.config.store import GuestConfig, check_line
from minipve.guests import shared
from minipve.network import veths

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
            _check_bridge(permit, current.get(name, ""), rights.PRESENT_BRIDGE)
            _check_bridge(permit, value, rights.BRIDGE)
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


def _check_bridge(permit: Permit, text: str, right: rights.Right) -> None:
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
    volume_ids.check_exists(store)
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", size):
        volume_ids.parse(volume)
        raise parameter_error(rootfs="existing volumes are not supported here, give a size in GiB: local:4")
    return volume_ids.checked_size(int(float(size) * 2**30))


def rootfs_text(volid: str, size: int) -> str:
    """Return the option ``rootfs`` as it is stored."""
    return f"{volid},size={volume_ids.size_text(size)}"


def rootfs_volume(options: Mapping[str, str]) -> str:
    """Return the volume ID of a container's root file system."""
    return schema.parse_option("rootfs", options["rootfs"], LXC)["volume"]


def rootfs_bytes(options: Mapping[str, str]) -> int:
    """Return the configured size of a container's root file system."""
    text = options.get("rootfs", "")
    return volume_ids.size_bytes(schema.parse_option("rootfs", text, LXC).get("size", "0")) if text else 0


def check_changes(new: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise 500 for changes that an existing container does not allow, with PVE's message if PVE has one."""
    for name, value in sorted(new.items()):
        if name == "rootfs" and schema.parse_option(name, value, LXC)["volume"] != rootfs_volume(options):
            raise ApiError("rootfs: another volume is not supported here")
        if name == "unprivileged":
            raise ApiError("unable to modify read-only option: 'unprivileged'")
        if _is_nic(name):
            veths.check_mtu(int(name[3:]), container_nics.parse(value))


def check_deletions(names: Iterable[str], config: GuestConfig) -> None:
    """Raise 500 with PVE's message if one of the options to delete is required for every container."""
    for name in {*config.options, *config.pending} & set(names):
        if name in ("memory", "ostype", "rootfs"):
            raise ApiError(f"unable to delete required option '{name}'")
        if name == "unprivileged":
            raise ApiError(f"unable to delete read-only option: '{name}'")
