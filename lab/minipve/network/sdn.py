"""The cluster's software-defined networks: zones and vnets.

A change of the configuration has no effect until ``PUT /cluster/sdn`` applies it. The API therefore has three
views of both lists: without a parameter the configuration, with ``running`` what was last applied, with
``pending`` the difference between the two.
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
"""The zone of bridges that belong to a node and not to a vnet."""
ZONES, VNETS = "zones", "vnets"
DEFAULT_MTU, VXLAN_HEADERS = 1500, 50
_ID_KEY = {ZONES: "zone", VNETS: "vnet"}
Options = dict[str, Any]
Rows = dict[str, Options]
Document = dict[str, dict[str, Any]]


class Sdn:
    """The cluster's zones and vnets. They are written by ``change()`` only."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.RLock()
        self.data: Document = self._load()

    def _load(self) -> Document:
        empty: Document = {ZONES: {}, VNETS: {}, "running": {ZONES: {}, VNETS: {}}}
        try:
            document = json.loads(self.file.read_bytes())
            parts = (document, document["running"])
            if not all(isinstance(part[area], dict) for part in parts for area in _ID_KEY):
                raise ValueError("it has no lists of zones and vnets")
        except FileNotFoundError:
            return empty
        except (ValueError, KeyError, TypeError) as error:
            hint = f"repair it, or start over without zones: rm {self.file}"
            raise UserError(f"{self.file} is damaged: {error}", hint) from error
        return dict(document)

    @contextmanager
    def change(self) -> Iterator[Document]:
        """Edit a copy of the configuration, which is stored if the block ends without an error."""
        with self._lock:
            draft: Document = json.loads(json.dumps(self.data))
            yield draft
            write_atomic(self.file, json.dumps(draft, indent=1, sort_keys=True))
            self.data = draft

    def apply(self) -> None:
        """Make the configuration the one that runs."""
        with self.change() as draft:
            draft["running"] = {area: draft[area] for area in _ID_KEY}

    @property
    def running(self) -> Mapping[str, Rows]:
        """The zones and vnets of the last apply."""
        return self.data["running"]

    def zone_of(self, bridge: str) -> str:
        """Return the zone on which rights to use a bridge are given: its vnet's, else ``LOCAL``."""
        return str(self.running[VNETS].get(bridge, {}).get("zone", LOCAL))

    def rows(self, area: str, view: str = "") -> Rows:
        """Return the rows of ``area`` by id: as configured, or in the ``view`` "pending" or "running"."""
        configured, runs = self.data[area], self.running[area]
        if view == "running":
            return {key: {_ID_KEY[area]: key, **runs[key], "digest": None} for key in sorted(runs)}
        if view == "pending":
            keys = sorted({*configured, *runs})
            return {key: pending(area, key, runs.get(key), configured.get(key)) for key in keys}
        digest = self.digest(area)
        return {key: {_ID_KEY[area]: key, **configured[key], "digest": digest} for key in sorted(configured)}

    def digest(self, area: str) -> str:
        """The SHA-1 of the configuration of ``area``."""
        text = json.dumps(self.data[area], sort_keys=True)
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def pending(area: str, key: str, runs: Options | None, configured: Options | None) -> Options:
    """Return the row of a zone or vnet in the view "pending".

    It holds what runs and, in ``state`` and ``pending``, what the next apply would change. None means that it
    does not exist there.
    """
    row: Options = {_ID_KEY[area]: key, **(runs or {}), "digest": None}
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
    """Return a zone's MTU: as configured, else 1500 less the headers of a tunnel."""
    return int(zone.get("mtu") or DEFAULT_MTU - VXLAN_HEADERS * (zone["type"] == "vxlan"))


def on_node(running: Mapping[str, Rows], node: str) -> Iterator[tuple[str, Options, Options]]:
    """Yield the vnets that run on a node: name, options, options of the zone."""
    for name, vnet in running[VNETS].items():
        zone = running[ZONES][vnet["zone"]]
        if node in (split_list(zone.get("nodes", "")) or [node]):
            yield name, vnet, zone
