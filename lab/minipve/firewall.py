"""Firewall options of guests: stored, but never applied, since minipve has no firewall.

The file ``etc/pve/firewall/VMID.fw`` has a section ``[OPTIONS]`` of ``key: value`` lines, as on a node.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from minipve.atomic import write_atomic
from minipve.node import Node

_HEAD = "[OPTIONS]"
Options = dict[str, str]


def load(node: Node, vmid: int) -> Options:
    """Return the options of a guest; none if no file exists."""
    try:
        lines = _file(node, vmid).read_text().splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition(": ") for line in lines if line and line != _HEAD)
    return {key: value for key, _, value in pairs}


def save(node: Node, vmid: int, options: Options) -> None:
    _file(node, vmid).parent.mkdir(exist_ok=True)
    lines = [f"{key}: {value}" for key, value in sorted(options.items())]
    write_atomic(_file(node, vmid), "\n".join([_HEAD, "", *lines, ""]))


def copy(node: Node, source: int, target: int) -> None:
    """Copy the options of a guest to its clone."""
    if options := load(node, source):
        save(node, target, options)


def forget(node: Node, vmid: int) -> None:
    """Remove the options of a deleted guest."""
    _file(node, vmid).unlink(missing_ok=True)


def digest(options: Options) -> str:
    """Return SHA-1 over the options, computed as PVE does."""
    text = "".join(f"{key}:{value}\n" for key, value in sorted(options.items()))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _file(node: Node, vmid: int) -> Path:
    return node.cluster / "firewall" / f"{vmid}.fw"
