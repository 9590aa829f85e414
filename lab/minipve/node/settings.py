"""Settings of a node that only its administrator uses: description, DNS servers, time zone."""

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

Settings = dict[str, Any]
_lock = threading.Lock()


def load(node: Node) -> Settings:
    """Return the settings: ``config``, ``dns`` and ``timezone``."""
    defaults: Settings = {"config": {}, "dns": {}, "timezone": "Etc/UTC"}
    try:
        return defaults | dict(json.loads(_file(node).read_bytes()))
    except FileNotFoundError:
        return defaults


@contextmanager
def change(node: Node) -> Iterator[Settings]:
    """Yield the settings, and save them unless the block fails."""
    with _lock:
        settings = load(node)
        yield settings
        write_atomic(_file(node), json.dumps(settings, indent=1) + "\n")


def digest(settings: Settings) -> str:
    """Return SHA-1 over the configuration."""
    text = json.dumps(settings["config"], sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _file(node: Node) -> Path:
    return node.paths.state / "etc" / "node.json"
