"""Which calls make the lab's bridge where it is on several nodes: a vnet, in a VXLAN zone of its own. Pure.

A vnet carries the lab's mark in its alias. A zone has no room for one, so it is the lab's own while every
vnet in it is; an empty one only if it is as the lab would make it. Changes wait for an apply.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dasklab.errors import LabError
from dasklab.machines import privileges
from dasklab.machines.change import Await, Change, Value
from dasklab.machines.observed import Observed, bridge_mark
from dasklab.machines.topology import Lab

APPLY = "/cluster/sdn"
_VNET = re.compile(r"[a-zA-Z][a-zA-Z0-9]{1,7}")
_LISTS = ("peers", "nodes")
Row = Mapping[str, Any]


def make(seen: Observed, lab: Lab) -> Iterator[Change]:
    """The calls after which each of the lab's bridges is a vnet that is up on all of its nodes.

    Raises:
        LabError: something foreign is in the way, or an apply would carry out others' changes too.
    """
    zone, wanted = privileges.zone(lab.name), _zone(seen, lab)
    _refuse_foreign(seen, lab)
    changes = [*_zone_changes(seen.sdn.zones.get(zone), zone, wanted), *_vnet_changes(seen, lab, zone)]
    lagging = [node for node in lab.nodes if zone not in seen.nodes[node].zones]
    if not changes and not lagging and zone not in seen.sdn.waiting:
        return
    _refuse_others(seen, zone)
    yield from changes
    up = {"zone": zone, "status": "available"}
    awaited = tuple(Await(f"nodes/{node}/sdn/zones", up) for node in lab.nodes)
    yield Change("PUT", APPLY, f"bring up {', '.join(lab.bridges)} on {', '.join(lab.nodes)}", until=awaited)


def remove(seen: Observed, lab: Lab) -> Iterator[Change]:
    """The calls after which nothing of the lab's own zone is left, configured or running.

    Raises:
        LabError: an apply would carry out others' changes too.
    """
    zone = privileges.zone(lab.name)
    own = [name for name, vnet in _inside(seen, zone).items() if _is_own(vnet, lab)]
    goes = zone in seen.sdn.zones and _is_own_zone(seen, lab, zone)
    if not own and not goes and zone not in seen.sdn.waiting:
        return
    _refuse_others(seen, zone)
    for name in own:
        yield Change("DELETE", f"{APPLY}/vnets/{name}", f"the lab's own bridge {name}")
    if goes:
        yield Change("DELETE", f"{APPLY}/zones/{zone}", "the lab's own zone")
    yield Change("PUT", APPLY, "take down the lab's own bridge on all nodes")


def vxlan_id(lab: str, number: int = 0) -> int:
    """The number, of 24 bits, of the tunnels of a lab's ``number``-th bridge."""
    return 1 + (int(hashlib.sha256(lab.encode()).hexdigest(), 16) + number) % (2**24 - 1)


def _zone(seen: Observed, lab: Lab) -> dict[str, Value]:
    """The zone as it is wanted.

    Raises:
        LabError: a node tells no address that the others could reach it by.
    """
    for node in lab.nodes:
        if not seen.nodes[node].address:
            raise LabError(
                f"node {node} tells no address that the other nodes could send the lab's frames to",
                "it is that of its interface with the gateway, or of the lab_management_bridge",
            )
    peers = ",".join(seen.nodes[node].address for node in lab.nodes)
    return {"type": "vxlan", "peers": peers, "nodes": ",".join(lab.nodes), "mtu": lab.tunnel_mtu}


def _zone_changes(have: Row | None, zone: str, wanted: Mapping[str, Value]) -> Iterator[Change]:
    if have is None:
        why = "joins the bridges of the lab's nodes by tunnels"
        yield Change("POST", f"{APPLY}/zones", why, {"zone": zone, **wanted})
        return
    differing = {
        key: value for key, value in wanted.items() if _plain(key, have.get(key)) != _plain(key, value)
    }
    if differing:
        yield Change("PUT", f"{APPLY}/zones/{zone}", "the lab's own zone: its nodes", differing)


def _plain(key: str, value: object) -> object:
    return frozenset(str(value).split(",")) if key in _LISTS else str(value)


def _vnet_changes(seen: Observed, lab: Lab, zone: str) -> Iterator[Change]:
    for number, name in enumerate(lab.bridges):
        if name not in seen.sdn.vnets:
            params: dict[str, Value] = {"vnet": name, "zone": zone, "tag": vxlan_id(lab.name, number)}
            params["alias"] = bridge_mark(lab.name)
            yield Change("POST", f"{APPLY}/vnets", f"the lab's own bridge {name}", params)


def _inside(seen: Observed, zone: str) -> dict[str, Row]:
    return {name: vnet for name, vnet in seen.sdn.vnets.items() if vnet["zone"] == zone}


def _is_own(vnet: Row, lab: Lab) -> bool:
    return vnet.get("alias") == bridge_mark(lab.name)


def _is_own_zone(seen: Observed, lab: Lab, zone: str) -> bool:
    """All in it is the lab's; or it is empty, left by a run that was cut off before it made the vnet."""
    if inside := _inside(seen, zone):
        return all(_is_own(vnet, lab) for vnet in inside.values())
    found = seen.sdn.zones[zone]
    return found.get("type") == "vxlan" and _plain("nodes", found.get("nodes")) == frozenset(lab.nodes)


def _refuse_foreign(seen: Observed, lab: Lab) -> None:
    zone = privileges.zone(lab.name)
    choose = "choose another lab_bridge in the inventory"
    for name in lab.bridges:
        if not _VNET.fullmatch(name):
            raise LabError(f"lab_bridge {name!r} is to be a vnet: two to eight letters and digits", choose)
        for node in lab.nodes:
            if name in seen.nodes[node].bridges:
                hint = f"{choose}; if it is this lab's, from when it was on one node: dasklab destroy"
                raise LabError(
                    f"node {node} has a bridge {name!r}, which the lab's vnet would be called", hint
                )
        vnet = seen.sdn.vnets.get(name)
        if vnet and not (_is_own(vnet, lab) and vnet["zone"] == zone):
            raise LabError(f"there is a vnet {name!r} that is not this lab's", choose)
    if zone in seen.sdn.zones and not _is_own_zone(seen, lab, zone):
        raise LabError(f"there is a zone {zone!r} that is not this lab's", "choose another lab_name")


def _refuse_others(seen: Observed, zone: str) -> None:
    """An apply is of all zones, and reloads the network of every node: what waits there is carried out."""
    waiting = [f"zone {other}" for other in sorted(seen.sdn.waiting - {zone})]
    waiting += [f"{name} on node {node}" for node, found in seen.nodes.items() for name in found.pending]
    if waiting:
        raise LabError(
            f"there are network changes that nobody has applied yet ({', '.join(waiting)}); "
            "an apply would carry them out together with the lab's vnet",
            "apply or revert them first (web interface: Datacenter > SDN, node > System > Network)",
        )
