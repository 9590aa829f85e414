"""Software-defined networks of the cluster: zones and vnets as configured, and as the last apply left them.

What is configured waits for ``PUT /cluster/sdn``, as a node keeps it: plain lists show it as if it stood,
``pending`` shows it beside what runs, ``running`` shows what runs.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minipve.atomic import write_atomic
from minipve.config.formats import split_list
from minipve.user_error import UserError

LOCAL = "localnetwork"
"""The zone of all bridges that are no vnets."""
ZONES, VNETS = "zones", "vnets"
DEFAULT_MTU, VXLAN_HEADERS = 1500, 50
_NAME = {ZONES: "zone", VNETS: "vnet"}
Options = dict[str, Any]
Rows = dict[str, Options]
Document = dict[str, dict[str, Any]]


class Sdn:
    """The cluster's zones and vnets; ``change()`` is the one way to write them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.RLock()
        self.data: Document = self._stored()

    def _stored(self) -> Document:
        empty: Document = {ZONES: {}, VNETS: {}, "running": {ZONES: {}, VNETS: {}}}
        try:
            found = json.loads(self.file.read_bytes())
            parts = (found, found["running"])
            if not all(isinstance(part[area], dict) for part in parts for area in _NAME):
                raise ValueError("not a list of zones and vnets")
        except FileNotFoundError:
            return empty
        except (ValueError, KeyError, TypeError) as error:
            hint = f"mend it, or begin without zones: rm {self.file}"
            raise UserError(f"{self.file} is damaged: {error}", hint) from error
        return dict(found)

    @contextmanager
    def change(self) -> Iterator[Document]:
        """Edit a copy of the configuration; it is stored only when the block ends without an error."""
        with self._lock:
            draft: Document = json.loads(json.dumps(self.data))
            yield draft
            write_atomic(self.file, json.dumps(draft, indent=1, sort_keys=True))
            self.data = draft

    def apply(self) -> None:
        """Let what is configured be what runs."""
        with self.change() as draft:
            draft["running"] = {area: draft[area] for area in _NAME}

    @property
    def running(self) -> Mapping[str, Rows]:
        """Zones and vnets as they were at the last apply."""
        return self.data["running"]

    def zone_of(self, bridge: str) -> str:
        """The zone whose rights count for a bridge: that of a vnet that runs, or the node's own bridges'."""
        return str(self.running[VNETS].get(bridge, {}).get("zone", LOCAL))

    def shown(self, area: str, view: str = "") -> Rows:
        """The rows of ``area`` by id: as configured, or in the ``view`` "pending" or "running"."""
        configured, runs = self.data[area], self.running[area]
        if view == "running":
            return {key: {_NAME[area]: key, **runs[key], "digest": None} for key in sorted(runs)}
        if view == "pending":
            keys = sorted({*configured, *runs})
            return {key: pending(area, key, runs.get(key), configured.get(key)) for key in keys}
        mark = self.digest(area)
        return {key: {_NAME[area]: key, **configured[key], "digest": mark} for key in sorted(configured)}

    def digest(self, area: str) -> str:
        """SHA-1 of what is configured."""
        text = json.dumps(self.data[area], sort_keys=True)
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def pending(area: str, key: str, runs: Options | None, configured: Options | None) -> Options:
    """A row that tells what runs and, in ``state`` and ``pending``, what the next apply would make of it."""
    row: Options = {_NAME[area]: key, **(runs or {}), "digest": None}
    before, after = runs or {}, configured or {}
    if runs is None:
        row["type"] = after["type"]
        waiting = {name: value for name, value in after.items() if name != "type"}
        return row | {"state": "new", "pending": waiting}
    if configured is None:
        return row | {"state": "deleted", "pending": {}}
    waiting = {name: value for name, value in after.items() if before.get(name) != value}
    waiting |= dict.fromkeys(before.keys() - after.keys(), "deleted")
    return row | ({"state": "changed", "pending": waiting} if waiting else {})


def mtu(zone: Options) -> int:
    """What a zone's frames may hold: its own word, or what a tunnel leaves of the underlay's 1500."""
    return int(zone.get("mtu") or DEFAULT_MTU - VXLAN_HEADERS * (zone["type"] == "vxlan"))


def on_node(running: Mapping[str, Rows], node: str) -> Iterator[tuple[str, Options, Options]]:
    """The vnets that a node has, each with its options and those of its zone."""
    for name, vnet in running[VNETS].items():
        zone = running[ZONES][vnet["zone"]]
        if node in (split_list(zone.get("nodes", "")) or [node]):
            yield name, vnet, zone
