"""The packages whose work minipve does, with the version of what does it here."""

from __future__ import annotations

import re
from typing import Any

from minipve.api.routing import route
from minipve.base import host, process
from minipve.node import node as node_module
from minipve.node.call import Call

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
