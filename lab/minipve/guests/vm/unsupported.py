"""Refuse the options that Proxmox VE implements and minipve does not, instead of ignoring them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from minipve.access import rights
from minipve.access.permit import Permit
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives
from minipve.config.rules import schema

_NEVER = re.compile(
    r"(?:hostpci|numa|parallel|usb|virtiofs)\d+|amd-sev|args|audio0|efidisk0|hookscript|hugepages|intel-tdx"
    r"|ivshmem|tpmstate0|vmstatestorage|watchdog"
)
_MAPPINGS = {"usb": "usb", "hostpci": "pci", "virtiofs": "dir"}
_ONLY = {"arch": ("x86_64",), "bios": ("seabios",), "citype": ("nocloud",)}
_MACHINES = ("pc", "q35")


def refuse(options: Mapping[str, str]) -> None:
    """Raise 400 for options that are not supported; the error names what is supported."""
    errors = {name: text for name, value in options.items() if (text := _problem(name, value))}
    if errors:
        raise parameter_error(**errors)


def check(permit: Permit, vmid: int, pool: str | None, options: Mapping[str, str]) -> None:
    """Raise 403, or PVE's error for what only root may set, so that privileges are checked before support.

    Only root@pam may use devices of the node itself. Devices that an administrator has mapped require
    Mapping.Use.
    """
    for name, value in options.items():
        kind = name.rstrip("0123456789")
        device = _parts(value)
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
            permit.need_right(rights.MAPPING, kind=_MAPPINGS[kind], name=mapping)


def _parts(text: str) -> dict[str, str]:
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
