"""What a node's QEMU offers: processor models, machine types."""

from __future__ import annotations

import re
from typing import Any

from minipve.api.routing import route
from minipve.base import process
from minipve.guests.qemu.command_line import CPU_MODELS
from minipve.node.call import Call

_PATH = "/nodes/{node}/capabilities/qemu"
_QEMU = "qemu-system-x86_64"
_VENDORS = {
    r"host|max|kvm\d+|qemu\d+|x86-64-v.*": "default",
    r"EPYC.*|Opteron.*|athlon|phenom": "AuthenticAMD",
    r"Dhyana": "HygonGenuine",
    r"YongFeng": "CentaurHauls",
    r".*": "GenuineIntel",
}
"""Pattern of a processor model -> the vendor that a guest sees; the first match counts."""
_CHIPSETS = {"pc": "i440fx", "q35": "q35"}


@route("GET", f"{_PATH}/cpu")
def cpu(call: Call) -> list[dict[str, Any]]:
    """Return the processor models that a VM may have here. There are no custom ones."""
    names = {*cpu_models(process.run([_QEMU, "-cpu", "help"])), *CPU_MODELS, "host"}
    return [{"name": name, "vendor": _vendor(name), "custom": 0} for name in sorted(names, key=str.lower)]


def cpu_models(text: str) -> list[str]:
    """Return the models in the output of QEMU's ``-cpu help``, without the versions of a model (pure)."""
    names = re.findall(r"^x86 (\S+)", text, re.MULTILINE)
    return [name for name in names if not re.search(r"-v\d+$", name) and name != "base"]


def _vendor(name: str) -> str:
    return next(vendor for pattern, vendor in _VENDORS.items() if re.fullmatch(pattern, name))


@route("GET", f"{_PATH}/cpu-flags")
def cpu_flags(call: Call) -> list[dict[str, str]]:
    """Return no flags, since minipve sets none on QEMU's command line."""
    return []


@route("GET", f"{_PATH}/machines")
def machines(call: Call) -> list[dict[str, str]]:
    """Return the two machine types that a VM may have here, in the version that QEMU has."""
    return machine_types(process.run([_QEMU, "-machine", "help"]))


def machine_types(text: str) -> list[dict[str, str]]:
    """Return the types from the output of QEMU's ``-machine help`` (pure)."""
    types = re.findall(r"^(pc|q35) .*\(alias of pc-(?:i440fx|q35)-([\w.]+)\)", text, re.MULTILINE)
    return [{"id": name, "type": _CHIPSETS[name], "version": version} for name, version in types]


@route("GET", f"{_PATH}/migration")
def migration(call: Call) -> dict[str, int]:
    return {"has-dbus-vmstate": 0}
