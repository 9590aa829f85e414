"""Software-defined networks: zones, vnets and subnets, and the bridges that they become."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from minipve.base.atomic import write_atomic
from minipve.base.errors import ApiError, UserError
from minipve.config.rules.formats import split_list
from minipve.network import guest_ports, interfaces
from minipve.network.interfaces import Iface

# The cluster's software-defined networks: zones, vnets and their subnets.
#
# A change of the configuration has no effect until `PUT /cluster/sdn` applies it. The API therefore has
# three
# views of each list: without a parameter the configuration, with `running` what was last applied, with
# `pending` the difference between the two.
#
# A client may lock the configuration. Then every change needs the lock's token.

LOCAL = "localnetwork"
"""The zone of bridges that belong to a node and not to a vnet."""
ZONES, VNETS, SUBNETS = "zones", "vnets", "subnets"
DEFAULT_MTU, VXLAN_HEADERS = 1500, 50
_SDN_PM = "/usr/share/perl5/PVE/Network/SDN.pm"
_SDN_API_PM = "/usr/share/perl5/PVE/API2/Network/SDN.pm"
_ID_KEY = {ZONES: "zone", VNETS: "vnet", SUBNETS: "subnet"}
Options = dict[str, Any]
Rows = dict[str, Options]
Document = dict[str, Any]


class Sdn:
    """The cluster's zones, vnets and subnets. They are written by ``change()`` only."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.RLock()
        self.data: Document = self._load()

    def _load(self) -> Document:
        areas: Document = {area: {} for area in _ID_KEY}
        try:
            document = areas | json.loads(self.file.read_bytes())  # older files have no subnets
            document["running"] = areas | document["running"]
            parts = (document, document["running"])
            if not all(isinstance(part[area], dict) for part in parts for area in _ID_KEY):
                raise ValueError("it has no lists of zones and vnets")
        except FileNotFoundError:
            return areas | {"running": dict(areas)}
        except (ValueError, KeyError, TypeError) as error:
            hint = f"repair it, or start over without zones: rm {self.file}"
            raise UserError(f"{self.file} is damaged: {error}", hint) from error
        return dict(document)

    @contextmanager
    def change(self, lock_token: str | None = None) -> Iterator[Document]:
        """Edit a copy of the configuration, which is stored if the block ends without an error.

        Raises:
            ApiError: a client has locked the configuration, and ``lock_token`` is not its token.
        """
        with self._lock:
            if self.data.get("lock") not in (None, lock_token):
                raise ApiError(f"invalid lock token provided! at {_SDN_PM} line 291.")
            draft: Document = json.loads(json.dumps(self.data))
            yield draft
            write_atomic(self.file, json.dumps(draft, indent=1, sort_keys=True))
            self.data = draft

    def lock(self, allow_pending: bool) -> str:
        """Lock the configuration, and return the lock's token."""
        with self.change() as draft:
            if not allow_pending and any(draft[area] != draft["running"][area] for area in _ID_KEY):
                raise ApiError(f"configuration has pending changes at {_SDN_API_PM} line 149.")
            draft["lock"] = token = _new_token()
        return token

    def unlock(self, lock_token: str | None, force: bool = False) -> None:
        """Remove the lock. ``force`` removes any lock."""
        with self.change(self.data.get("lock") if force else lock_token) as draft:
            draft.pop("lock", None)

    def apply(self, lock_token: str | None = None, release_lock: bool = True) -> None:
        """Make the configuration the one that runs."""
        with self.change(lock_token) as draft:
            draft["running"] = {area: draft[area] for area in _ID_KEY}
            _release(draft, lock_token, release_lock)

    def rollback(self, lock_token: str | None = None, release_lock: bool = True) -> None:
        """Make the configuration what runs, which discards all pending changes."""
        with self.change(lock_token) as draft:
            draft |= draft["running"]
            _release(draft, lock_token, release_lock)

    @property
    def running(self) -> Mapping[str, Rows]:
        """The zones, vnets and subnets of the last apply."""
        running: Mapping[str, Rows] = self.data["running"]
        return running

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


def _release(draft: Document, lock_token: str | None, release_lock: bool) -> None:
    if lock_token and release_lock:
        draft.pop("lock", None)


def _new_token() -> str:
    """Return a UUID of version 7, like PVE's tokens: a time stamp in milliseconds and random bits."""
    number = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return str(UUID(int=number & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62))


def pending(area: str, key: str, runs: Options | None, configured: Options | None) -> Options:
    """Return the row of a zone, vnet or subnet in the view "pending".

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


def zone_mtu(zone: Options) -> int:
    """Return a zone's MTU: as configured, else 1500 less the headers of a tunnel."""
    return int(zone.get("mtu") or DEFAULT_MTU - VXLAN_HEADERS * (zone["type"] == "vxlan"))


def gateway(running: Mapping[str, Rows], vnet: str) -> str:
    """Return the address of the gateway of a vnet's subnet, with prefix; "" if it has none."""
    for name, subnet in running[SUBNETS].items():
        if subnet["vnet"] == vnet and "gateway" in subnet:
            return f"{subnet['gateway']}/{name.rpartition('-')[2]}"
    return ""


def on_node(running: Mapping[str, Rows], node: str) -> Iterator[tuple[str, Options, Options]]:
    """Yield the vnets that run on a node: name, options, options of the zone."""
    for name, vnet in running[VNETS].items():
        zone = running[ZONES][vnet["zone"]]
        if node in (split_list(zone.get("nodes", "")) or [node]):
            yield name, vnet, zone


# The vnets of a node as interfaces: one bridge each, and in a VXLAN zone the tunnel that is its port.
#
# As on a Proxmox VE node they are written to `interfaces.d/sdn` at each reload.


def file(main: Path) -> Path:
    """The vnets' file that belongs to a node's ``main`` interfaces file."""
    return main.with_name("interfaces.d") / "sdn"


def write(main: Path, running: Mapping[str, Rows], node: str) -> None:
    """Write the vnets that run on ``node``. Its ``main`` interfaces file holds its own addresses."""
    own = {iface.address.partition("/")[0] for iface in interfaces.load(main).values() if iface.address}
    rows = ((*row, gateway(running, row[0])) for row in on_node(running, node))
    ifaces = {iface.name: iface for row in rows for iface in stanzas(*row, own)}
    write_atomic(file(main), interfaces.write_interfaces(ifaces), 0o644)


def stanzas(
    name: str, vnet: Options, zone: Options, gateway: str, own_addresses: Collection[str]
) -> list[Iface]:
    """Return the interfaces of one vnet on a node with ``own_addresses`` (pure).

    ``gateway`` is the address of its subnet's gateway with prefix, which the bridge of a simple zone gets.
    """
    mtu = str(zone_mtu(zone))
    is_tunnelled, tunnel = zone["type"] == "vxlan", f"vxlan_{name}"
    ports = tunnel if is_tunnelled else "none"
    bridge = Iface(name, ports=ports, stp="off", forward_delay="0", mtu=mtu)
    if vnet.get("vlanaware"):
        bridge = replace(bridge, vlan_aware="yes", vids=guest_ports.DEFAULT_VIDS)
    if not is_tunnelled:
        return [replace(bridge, address=gateway, method="static") if gateway else bridge]
    peers = [peer for peer in split_list(zone["peers"]) if peer not in own_addresses]
    options = (
        f"vxlan-id {vnet['tag']}",
        *(f"vxlan_remoteip {peer}" for peer in peers),
        *([f"vxlan-port {zone['vxlan-port']}"] if "vxlan-port" in zone else []),
    )
    return [Iface(tunnel, mtu=mtu, options=options), bridge]
