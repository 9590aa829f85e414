"""The options of a container: who may set which, their canonical form, what is not supported here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from minipve import guests
from minipve.access.permit import Permit
from minipve.config import container_nics, schema, values
from minipve.config.kinds import LXC
from minipve.config.store import GuestConfig, check_line
from minipve.errors import ApiError, denied, parameter_error
from minipve.image import storage
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
_NEVER = re.compile(r"(?:mp|dev|unused)\d+|env|hookscript")
_ROOTFS = {"volume", "size", "replicate"}
DEFAULT_ROOTFS_GIB = 4


def check(
    permit: Permit,
    vmid: int,
    pool: str | None,
    given: Mapping[str, str],
    now: Mapping[str, str],
    deleted: Iterable[str] = (),
) -> None:
    """403 unless the caller may set the options ``given`` of a container, and delete those ``deleted``.

    ``now`` is what the container has. Volumes are the affair of ``volume_access``.
    """
    if permit.is_root:
        return
    for name, value in [*given.items(), *dict.fromkeys(deleted, "").items()]:
        if name == "lock":
            raise ApiError("only root can set 'lock' config")
        if name == "features":
            _check_features(permit, vmid, pool, value, now)
        elif name == "tags":  # asked of the container itself: the pool of a new one gives no right to them
            permit.need(f"/vms/{vmid}", ["VM.Config.Options"])
        elif refusal := next((text for pattern, text in _ROOT_ONLY if pattern.fullmatch(name)), None):
            raise denied(f"{refusal} is only allowed for root@pam")
        else:
            permit.need_vm(vmid, pool, [privilege(name)])
        if _is_net(name):
            _check_bridges(permit, value, now.get(name, ""))
        elif _is_mount(name) and value:
            _check_mount(name, value)


def privilege(name: str) -> str:
    """The privilege that an option takes, where it takes only one."""
    if _is_net(name):
        return "VM.Config.Network"
    return "VM.Config.Disk" if _is_mount(name) else _PRIVILEGES.get(name, "VM.Config.Options")


def _is_net(name: str) -> bool:
    return re.fullmatch(r"net\d+", name) is not None


def _is_mount(name: str) -> bool:
    return re.fullmatch(r"rootfs|mp\d+", name) is not None


def _check_bridges(permit: Permit, *nics: str) -> None:
    for nic in map(container_nics.parse, filter(None, nics)):
        guests.check_bridge(permit, nic.bridge, nic.tag)


def _check_mount(name: str, value: str) -> None:
    """403 for anything but a volume: a folder of the host, a device."""
    volume = schema.parse_option(name, value, LXC)["volume"]
    if volume.startswith("/"):
        kind = "device" if volume.startswith("/dev/") else "bind"
        raise denied(f"mount point type {kind} is only allowed for root@pam")


def _check_features(permit: Permit, vmid: int, pool: str | None, text: str, now: Mapping[str, str]) -> None:
    """Nesting of an unprivileged container takes VM.Allocate; all else is for root@pam."""
    if now.get("unprivileged") != "1":
        raise denied("changing feature flags for privileged container is only allowed for root@pam")
    old, new = values.features(now), schema.parse_option("features", text, LXC) if text else {}
    changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
    if changed - {"nesting"}:
        raise denied("changing feature flags (except nesting) is only allowed for root@pam")
    if changed:
        permit.need_vm(vmid, pool, ["VM.Allocate"])


def refuse(given: Mapping[str, str]) -> None:
    """400, with what is supported, for the options that would be ignored."""
    errors = {name: text for name, value in given.items() if (text := _complaint(name, value))}
    if errors:
        raise parameter_error(**errors)


def _complaint(name: str, value: str) -> str | None:
    if _NEVER.fullmatch(name):
        return "not supported here"
    if name == "arch" and value not in ("", "amd64"):
        return f"'{value}' is not supported here, only amd64"
    if name == "features" and any(
        on == "1" for key, on in values.features({"features": value}).items() if key != "nesting"
    ):
        return "only nesting is supported here"
    if name == "rootfs" and value and set(schema.parse_option("rootfs", value, LXC)) - _ROOTFS:
        return "only a volume and its size are supported here"
    return None


def normalise(given: Mapping[str, Any]) -> dict[str, str]:
    """The options as they are stored: NICs canonical and with a MAC, tags sorted, the rest as given."""
    options = {name: str(value) for name, value in given.items()}
    for name, value in options.items():
        check_line(name, value)
        if _is_net(name):
            options[name] = container_nics.canonical(value)
        elif name == "tags":
            options[name] = guests.tags(value)
    return options


def wanted_size(rootfs: str) -> int:
    """The bytes of a rootfs that is to be made; PVE's texts for what asks for no new one."""
    volume = schema.parse_option("rootfs", rootfs, LXC)["volume"]
    if volume.startswith("/"):
        raise denied("mount point type bind is only allowed for root@pam")
    store, colon, size = volume.partition(":")
    if not colon:
        raise ApiError(
            "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651."
        )
    storage.check_exists(store)
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", size):
        storage.parse(volume)
        raise parameter_error(rootfs="existing volumes are not supported here, give a size in GiB: local:4")
    return storage.checked_size(int(float(size) * 2**30))


def rootfs_text(volid: str, size: int) -> str:
    """The option as it is stored."""
    return f"{volid},size={storage.size_text(size)}"


def rootfs_volume(options: Mapping[str, str]) -> str:
    """The volume of a container's tree."""
    return schema.parse_option("rootfs", options["rootfs"], LXC)["volume"]


def rootfs_bytes(options: Mapping[str, str]) -> int:
    """The size of a container's tree, as its configuration says."""
    text = options.get("rootfs", "")
    return storage.size_bytes(schema.parse_option("rootfs", text, LXC).get("size", "0")) if text else 0


def check_changes(given: Mapping[str, str], options: Mapping[str, str]) -> None:
    """500 for what a container cannot change, with PVE's texts where it has some."""
    for name, value in sorted(given.items()):
        if name == "rootfs" and schema.parse_option(name, value, LXC)["volume"] != rootfs_volume(options):
            raise ApiError("rootfs: another volume is not supported here")
        if name == "unprivileged":
            raise ApiError("unable to modify read-only option: 'unprivileged'")
        if _is_net(name):
            veths.check_mtu(int(name[3:]), container_nics.parse(value))


def check_deletions(names: Iterable[str], config: GuestConfig) -> None:
    """500, with PVE's texts, for what every container has."""
    for name in {*config.options, *config.pending} & set(names):
        if name in ("memory", "ostype", "rootfs"):
            raise ApiError(f"unable to delete required option '{name}'")
        if name == "unprivileged":
            raise ApiError(f"unable to delete read-only option: '{name}'")
