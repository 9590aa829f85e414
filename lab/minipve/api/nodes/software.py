"""What a node runs with: packages, processor models, machine types, certificates."""

from __future__ import annotations

import re
from typing import Any

from minipve.api.routing import route
from minipve.base import host, process
from minipve.guests.qemu.command_line import CPU_MODELS
from minipve.http import tls
from minipve.node import node as node_module
from minipve.node.call import Call

# The packages whose work minipve does, with the version of what does it here.

IFUPDOWN2 = "3.3.0-1+pmx11"
"""Clients look for Proxmox's "+pmx" in this version before they reload a node's network."""


@route("GET", "/nodes/{node}/apt/versions")
def versions(call: Call) -> list[dict[str, Any]]:
    """Return the packages. QEMU and LXC have the versions of this machine's programs."""
    version = node_module.VERSION
    manager = {"ManagerVersion": f"{version['version']}/{version['repoid']}"}
    return [
        _package("proxmox-ve", f"{version['release']}.0") | {"RunningKernel": host.kernel()["release"]},
        _package("pve-manager", version["version"]) | manager,
        _package("ifupdown2", IFUPDOWN2),
        _package("lxc-pve", _installed("lxc-start")),
        _package("pve-qemu-kvm", _installed("qemu-system-x86_64")),
    ]


def _package(name: str, version: str) -> dict[str, Any]:
    """Return a package's row; "" is the version of one that is not installed."""
    row = {
        "Package": name, "Title": name, "Description": f"{name}, as minipve implements it",
        "Arch": "amd64", "Origin": "minipve", "Priority": "optional", "Section": "admin", "Version": version,
    }  # fmt: skip
    if not version:
        return row | {"CurrentState": "NotInstalled"}
    return row | {"CurrentState": "Installed", "OldVersion": version}


def _installed(program: str) -> str:
    """Return the version of a program on this machine; "" if it is not installed."""
    if process.which(program) is None:
        return ""
    match = re.search(r"\d+(?:\.\d+)+", process.run([program, "--version"]))
    return match[0] if match else ""


# What a node's QEMU offers: processor models, machine types.

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


# Certificates: those of the node, and the ACME configuration of a cluster that has never used ACME.

_STANDALONE = {"plugin": "standalone", "type": "standalone"}
"""The ACME plugin that every cluster has."""


@route("GET", "/nodes/{node}/certificates/info")
def info(call: Call) -> list[dict[str, Any]]:
    """Return what the certificates of the authority and of the node contain."""
    return [tls.describe(call.node.cluster / name) for name in (tls.CA_FILE, tls.CERTIFICATE_FILE)]


@route("GET", "/cluster/acme/account")
def accounts(call: Call) -> list[dict[str, Any]]:
    return []


@route("GET", "/cluster/acme/plugins")
def plugins(call: Call) -> list[dict[str, Any]]:
    return [_STANDALONE] if call.get("type") in (None, "standalone") else []
