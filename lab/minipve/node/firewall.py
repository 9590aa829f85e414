"""The firewall's configuration: stored as PVE stores it, and never applied, since minipve has no firewall.

There is a configuration for the cluster, for each node and for each guest: the *scope*. PVE applies none of
them while the option ``enable`` of the cluster is 0. minipve accepts only 0, so its answers are true.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minipve.base.atomic import write_atomic
from minipve.node.node import Node

Config = dict[str, Any]
CLUSTER = "cluster"
_lock = threading.Lock()


def load(node: Node, scope: str) -> Config:
    """Return the configuration of a scope: ``options``, ``rules``, ``aliases``, ``ipset``, ``groups``."""
    empty: Config = {"options": {}, "rules": [], "aliases": {}, "ipset": {}, "groups": {}}
    try:
        return empty | dict(json.loads(_file(node, scope).read_bytes()))
    except FileNotFoundError:
        return empty


@contextmanager
def change(node: Node, scope: str) -> Iterator[Config]:
    """Yield the configuration of a scope, and save it unless the block fails."""
    with _lock:
        config = load(node, scope)
        yield config
        _file(node, scope).parent.mkdir(exist_ok=True)
        write_atomic(_file(node, scope), json.dumps(config, indent=1) + "\n")


def copy(node: Node, source: int, target: int) -> None:
    """Copy the configuration of a guest to its clone."""
    if _file(node, str(source)).exists():
        with change(node, str(target)) as config:
            config |= load(node, str(source))


def forget(node: Node, vmid: int) -> None:
    """Remove the configuration of a deleted guest."""
    _file(node, str(vmid)).unlink(missing_ok=True)


def options_digest(options: dict[str, str]) -> str:
    """Return SHA-1 over the options, computed as PVE does."""
    return _sha1("".join(f"{key}:{value}\n" for key, value in sorted(options.items())))


def digest(value: Any) -> str:
    """Return SHA-1 over rules or any other part of the configuration."""
    return _sha1(json.dumps(value, sort_keys=True))


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _file(node: Node, scope: str) -> Path:
    return node.first.cluster / "firewall" / f"{scope}.json"
