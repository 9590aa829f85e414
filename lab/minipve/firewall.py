"""The firewall options of guests: kept as PVE keeps them, never in force, since there is no firewall.

A file ``etc/pve/firewall/VMID.fw`` with a section ``[OPTIONS]`` of ``key: value`` lines.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from minipve.atomic import write_atomic
from minipve.node import Node

_HEAD = "[OPTIONS]"
Options = dict[str, str]


def load(node: Node, vmid: int) -> Options:
    """The options of a guest; none where nobody has set any."""
    try:
        lines = _file(node, vmid).read_text().splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition(": ") for line in lines if line and line != _HEAD)
    return {key: value for key, _, value in pairs}


def save(node: Node, vmid: int, options: Options) -> None:
    """Keep the options of a guest."""
    _file(node, vmid).parent.mkdir(exist_ok=True)
    lines = [f"{key}: {value}" for key, value in sorted(options.items())]
    write_atomic(_file(node, vmid), "\n".join([_HEAD, "", *lines, ""]))


def copy(node: Node, source: int, target: int) -> None:
    """Give a clone the options of its source."""
    if options := load(node, source):
        save(node, target, options)


def forget(node: Node, vmid: int) -> None:
    """Remove the options of a guest that is no more."""
    _file(node, vmid).unlink(missing_ok=True)


def digest(options: Options) -> str:
    """SHA-1 over the options, as PVE works it out."""
    text = "".join(f"{key}:{value}\n" for key, value in sorted(options.items()))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _file(node: Node, vmid: int) -> Path:
    return node.cluster / "firewall" / f"{vmid}.fw"
