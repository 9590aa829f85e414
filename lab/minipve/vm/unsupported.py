"""Options that Proxmox VE acts on and this endpoint does not: none of them is accepted and then ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lab.minipve.config import schema
from lab.minipve.errors import parameter_error

_NEVER = re.compile(
    r"(?:hostpci|numa|parallel|usb|virtiofs)\d+|amd-sev|args|audio0|efidisk0|hookscript|hugepages|intel-tdx"
    r"|ivshmem|tpmstate0|vmstatestorage|watchdog"
)
_ONLY = {"arch": ("x86_64",), "bios": ("seabios",), "citype": ("nocloud",)}
_MACHINES = ("pc", "q35")


def refuse(options: Mapping[str, str]) -> None:
    """400, with what is supported, for the options that would be ignored."""
    errors = {name: text for name, value in options.items() if (text := _complaint(name, value))}
    if errors:
        raise parameter_error(**errors)


def _complaint(name: str, value: str) -> str | None:
    if _NEVER.fullmatch(name):
        return "not supported here"
    if name == "machine" and set(schema.parse_option(name, value).values()) - set(_MACHINES):
        return f"'{value}' is not supported here, only {' and '.join(_MACHINES)}"
    if name in _ONLY and value not in _ONLY[name]:
        return f"'{value}' is not supported here, only {' and '.join(_ONLY[name])}"
    return None
