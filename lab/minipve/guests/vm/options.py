"""The options of a VM: the privileges to set them, their canonical form, the defaults of a new VM."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from minipve.access import permissions
from minipve.access.permissions import Permit
from minipve.base import process
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives, nics
from minipve.config.drives import parse_volume_id as parse_volume
from minipve.config.rules import schema
from minipve.config.store import check_line
from minipve.guests import shared
from minipve.guests.qemu import cloudinit
from minipve.storage.directory import Storage

_GROUPS = {
    "VM.Config.CPU": "cores cpu cpulimit cpuunits numa smp sockets vcpus",
    "VM.Config.Memory": "memory balloon shares allow-ksm",
    "VM.Config.HWType": "acpi audio0 hotplug kvm machine rng0 scsihw smbios1 tablet vga watchdog",
    "VM.Config.Options": "agent autostart bios description keyboard localtime migrate_downtime migrate_speed "
    "name onboot ostype protection reboot startdate startup tdf template",
    "VM.PowerMgmt": "freeze",
    "VM.Config.Disk": "boot bootdisk vmstatestorage",
    "VM.Config.Cloudinit VM.Config.Network": "cicustom cipassword citype ciuser ciupgrade nameserver "
    "searchdomain sshkeys",
}
_CHECKED_BY_VALUE = re.compile(r"(?:efidisk|tpmstate|unused|serial|usb|hostpci|virtiofs)\d+")
_PRIVILEGES = {option: privs.split() for privs, names in _GROUPS.items() for option in names.split()}
_NEVER = re.compile(
    r"(?:hostpci|numa|parallel|usb|virtiofs)\d+|amd-sev|args|audio0|efidisk0|hookscript|hugepages|intel-tdx"
    r"|ivshmem|tpmstate0|vmstatestorage|watchdog"
)
_MAPPINGS = {"usb": "usb", "hostpci": "pci", "virtiofs": "dir"}
_ONLY = {"arch": ("x86_64",), "bios": ("seabios",), "citype": ("nocloud",)}
_MACHINES = ("pc", "q35")


def check(permit: Permit, vmid: int, pool: str | None, names: Iterable[str]) -> None:
    """Raise 403 (or PVE's ``only root can set``) unless the caller may set all options ``names`` of the VM.

    `check_values` checks the options for which the privilege depends on the value, such as drives and serial
    ports. Callers check ``tags``.
    """
    if permit.is_root:
        return
    for name in names:
        if drives.is_slot(name) or name == "tags" or _CHECKED_BY_VALUE.fullmatch(name):
            continue
        if privs := _privileges(name):
            permit.need_vm(vmid, pool, privs, any_of=True)
        else:
            raise ApiError(f"only root can set '{name}' config")
        if name == "startup":
            permit.need_right(permissions.START_ORDER)


def _privileges(name: str) -> list[str] | None:
    if re.fullmatch(r"net\d+", name):
        return ["VM.Config.Network"]
    if re.fullmatch(r"ipconfig\d+", name):
        return _PRIVILEGES["ciuser"]
    return _PRIVILEGES["cores"] if re.fullmatch(r"numa\d+", name) else _PRIVILEGES.get(name)


def check_values(
    permit: Permit, vmid: int, pool: str | None, options: Mapping[str, str], verb: str = "set"
) -> None:
    """Check what depends on values: bridges, serial ports and, when a VM is changed, kinds of drives.

    ``verb`` is the word in PVE's error texts: ``set`` for a new VM, ``modify`` for a change.
    """
    if not permit.is_root:
        _check_devices(permit, vmid, pool, options)
    _refuse_unsupported(options)
    for name, value in options.items():
        if re.fullmatch(r"net\d+", name):
            nic = nics.parse(value)
            shared.check_bridge(permit, nic.bridge, nic.tag)
        elif verb == "modify" and (drives.is_slot(name) or name.startswith("unused")):
            check_drive(permit, vmid, pool, drives.parse(name, value))
        elif re.fullmatch(r"serial\d+", name):
            if value != "socket" and not permit.is_root:
                raise ApiError(f"only root can {verb} '{name}' config for real devices")
            permit.need_vm(vmid, pool, ["VM.Config.HWType"])


def check_hookscript(storage: Storage, volid: str | None) -> None:
    """Raise 400 for a hook script that cannot be executed. PVE checks this before any privileges."""
    if volid is None:
        return
    file = storage.path(volid)
    if parse_volume(volid).content != "snippets":
        raise parameter_error(hookscript=f"'{volid}' is not in the snippets directory\n")
    if not file.is_file():
        raise parameter_error(hookscript=f"script '{volid}' does not exist\n")
    if not os.access(file, os.X_OK):
        raise parameter_error(hookscript=f"script '{volid}' is not executable\n")


def check_drive(permit: Permit, vmid: int, pool: str | None, drive: drives.Drive) -> None:
    """Raise 403 unless the caller may change such a drive. `volume_access` checks its volumes."""
    privs = ["VM.Config.Disk"]
    if drives.is_cdrom(drive):
        privs = ["VM.Config.CDROM", *(["VM.Config.Cloudinit"] if drives.is_cloudinit(drive) else [])]
    if pool is None:  # PVE does not require them for a new VM
        permit.need_vm(vmid, pool, privs)


def normalise(params: Mapping[str, Any]) -> dict[str, str]:
    """Return options as they are stored: NICs in canonical form with a MAC address, tags sorted."""
    options = {name: str(value) for name, value in params.items()}
    for name, value in options.items():
        check_line(name, value)
        if re.fullmatch(r"net\d+", name):
            options[name] = nics.canonical(value)
        elif drives.is_slot(name):
            options[name] = drives.text(name, drives.parse(name, value))
        elif name == "tags":
            options[name] = shared.tags(value)
    if "sshkeys" in options:
        cloudinit.check_keys(options)
    return options


def renewed_identity(options: Mapping[str, str]) -> dict[str, str]:
    """Return new values for the options that identify a VM, for a clone: SMBIOS UUID and generation id."""
    smbios = schema.parse_option("smbios1", options.get("smbios1", "")) | {"uuid": str(uuid.uuid4())}
    vmgenid = {"vmgenid": str(uuid.uuid4())} if "vmgenid" in options else {}
    return {"smbios1": schema.option_text("smbios1", smbios)} | vmgenid


def defaults(options: Mapping[str, str], qemu_version: str) -> dict[str, str]:
    """Return the options that PVE adds to a new VM."""
    identity = {"smbios1": f"uuid={uuid.uuid4()}", "vmgenid": str(uuid.uuid4())}
    meta = {"meta": f"creation-qemu={qemu_version},ctime={int(time.time())}"}
    return identity | meta | {"boot": drives.default_boot(options)}


def hash_password(password: str) -> str:
    """Return the SHA-256 crypt hash of a password, unless it is a crypt hash already."""
    if re.match(r"\$(?:5|6|y|2[aby])\$", password):
        return password
    return process.run(["openssl", "passwd", "-5", "-stdin"], stdin=password).strip()


def _refuse_unsupported(options: Mapping[str, str]) -> None:
    """Raise 400 for options that are not supported; the error names what is supported."""
    errors = {name: text for name, value in options.items() if (text := _problem(name, value))}
    if errors:
        raise parameter_error(**errors)


def _check_devices(permit: Permit, vmid: int, pool: str | None, options: Mapping[str, str]) -> None:
    """Raise 403, or PVE's error for what only root may set, so that privileges are checked before support.

    Only root@pam may use devices of the node itself. Devices that an administrator has mapped require
    Mapping.Use.
    """
    for name, value in options.items():
        kind = name.rstrip("0123456789")
        device = _device_parts(value)
        if kind == "usb":
            permit.need_vm(vmid, pool, ["VM.Config.HWType"])
            if device.get("host", "spice").lower() != "spice":
                raise ApiError(f"only root can set '{name}' config for real devices")
        elif kind == "hostpci" and "host" in device:
            raise ApiError(f"only root can set '{name}' config for non-mapped devices")
        elif kind == "virtiofs":
            permit.need_vm(vmid, pool, ["VM.Config.Disk"])
        mapping = device.get("host" if kind == "virtiofs" else "mapping")
        if kind in _MAPPINGS and mapping:
            permit.need_right(permissions.MAPPING, kind=_MAPPINGS[kind], name=mapping)


def _device_parts(text: str) -> dict[str, str]:
    """Parse a device's property string. The part without a name is the device, or a folder's mapping."""
    pairs = (part.rpartition("=") for part in text.split(","))
    return {key or "host": value for key, _, value in pairs}


def _problem(name: str, value: str) -> str | None:
    if _NEVER.fullmatch(name):
        return "not supported here"
    if name == "machine" and set(schema.parse_option(name, value).values()) - set(_MACHINES):
        return f"'{value}' is not supported here, only {' and '.join(_MACHINES)}"
    if drives.is_slot(name) and drives.is_new(drive := drives.parse(name, value)):
        fmt = drive.get("format", "qcow2")
        return None if fmt == "qcow2" else f"format '{fmt}' is not supported here, only qcow2"
    if name in _ONLY and value not in _ONLY[name]:
        return f"'{value}' is not supported here, only {' and '.join(_ONLY[name])}"
    return None
