"""Plan the API calls for the bridge of a lab on several nodes: a vnet in a VXLAN zone of its own. Pure.

A vnet carries the lab's mark in its alias. A zone has no field for a mark: it belongs to the lab if all vnets
in it do; an empty zone belongs to the lab if it is configured as the lab would. Changes take effect with an
apply.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Change, ExpectedRow, Value
from dasklab.machines.endpoint.observed import Observed, bridge_mark
from dasklab.machines.inventory.topology import Lab

APPLY = "/cluster/sdn"
_VNET = re.compile(r"[a-zA-Z][a-zA-Z0-9]{1,7}")
_LISTS = ("peers", "nodes")
Row = Mapping[str, Any]


def make(observed: Observed, lab: Lab) -> Iterator[Change]:
    """Yield the calls that create each of the lab's bridges as a vnet and bring it up on all nodes.

    Raises:
        LabError: something that is not this lab's is in the way, or an apply would include others' changes.
    """
    settings = _zone_settings(observed, lab)
    _refuse_foreign(observed, lab)
    changes = [*_zone_changes(observed, lab, settings), *_vnet_changes(observed, lab)]
    down = [node for node in lab.nodes if lab.zone not in observed.nodes[node].zones]
    if not changes and not down and lab.zone not in observed.sdn.waiting:
        return
    _refuse_changes_of_others(observed, lab)
    yield from changes
    up = {"zone": lab.zone, "status": "available"}
    rows = tuple(ExpectedRow(f"nodes/{node}/sdn/zones", up) for node in lab.nodes)
    yield Change("PUT", APPLY, f"bring up {', '.join(lab.bridges)} on {', '.join(lab.nodes)}", until=rows)


def remove(observed: Observed, lab: Lab) -> Iterator[Change]:
    """Yield the calls that remove the lab's own vnets and zone, from the configuration and from the nodes.

    Raises:
        LabError: an apply would include others' changes.
    """
    own = [name for name, vnet in _vnets(observed, lab).items() if _is_own(vnet, lab)]
    is_own_zone = lab.zone in observed.sdn.zones and _is_own_zone(observed, lab)
    if not own and not is_own_zone and lab.zone not in observed.sdn.waiting:
        return
    _refuse_changes_of_others(observed, lab)
    for name in own:
        yield Change("DELETE", f"{APPLY}/vnets/{name}", f"the lab's own bridge {name}")
    if is_own_zone:
        yield Change("DELETE", f"{APPLY}/zones/{lab.zone}", "the lab's own zone")
    yield Change("PUT", APPLY, "take down the lab's own bridge on all nodes")


def vxlan_id(lab: str, number: int = 0) -> int:
    """Return the VXLAN network identifier (24 bits) of a lab's bridge; ``number`` is the bridge's index."""
    return 1 + (int(hashlib.sha256(lab.encode()).hexdigest(), 16) + number) % (2**24 - 1)


def _zone_settings(observed: Observed, lab: Lab) -> dict[str, Value]:
    """Return the settings of the lab's zone.

    Raises:
        LabError: a node has no address at which the others could reach it.
    """
    for node in lab.nodes:
        if not observed.nodes[node].address:
            raise LabError(
                f"node {node} has no address to which the other nodes could send the lab's frames",
                "give an address to its interface with the gateway, or to the lab_management_bridge",
            )
    peers = ",".join(observed.nodes[node].address for node in lab.nodes)
    return {"type": "vxlan", "peers": peers, "nodes": ",".join(lab.nodes), "mtu": lab.tunnel_mtu}


def _zone_changes(observed: Observed, lab: Lab, settings: Mapping[str, Value]) -> Iterator[Change]:
    have = observed.sdn.zones.get(lab.zone)
    if have is None:
        why = "tunnels between the bridges of the lab's nodes"
        yield Change("POST", f"{APPLY}/zones", why, {"zone": lab.zone, **settings})
        return
    different = {k: v for k, v in settings.items() if _canonical(k, have.get(k)) != _canonical(k, v)}
    if different:
        yield Change("PUT", f"{APPLY}/zones/{lab.zone}", "the lab's own zone: its nodes", different)


def _canonical(key: str, value: object) -> object:
    return frozenset(str(value).split(",")) if key in _LISTS else str(value)


def _vnet_changes(observed: Observed, lab: Lab) -> Iterator[Change]:
    for number, name in enumerate(lab.bridges):
        if name not in observed.sdn.vnets:
            params: dict[str, Value] = {"vnet": name, "zone": lab.zone, "tag": vxlan_id(lab.name, number)}
            params["alias"] = bridge_mark(lab.name)
            yield Change("POST", f"{APPLY}/vnets", f"the lab's own bridge {name}", params)


def _vnets(observed: Observed, lab: Lab) -> dict[str, Row]:
    """Return the vnets in the lab's zone."""
    return {name: vnet for name, vnet in observed.sdn.vnets.items() if vnet["zone"] == lab.zone}


def _is_own(vnet: Row, lab: Lab) -> bool:
    return vnet.get("alias") == bridge_mark(lab.name)


def _is_own_zone(observed: Observed, lab: Lab) -> bool:
    """Return whether the lab's zone is its own. An interrupted run may have left the zone empty."""
    if vnets := _vnets(observed, lab):
        return all(_is_own(vnet, lab) for vnet in vnets.values())
    row = observed.sdn.zones[lab.zone]
    return row.get("type") == "vxlan" and _canonical("nodes", row.get("nodes")) == frozenset(lab.nodes)


def _refuse_foreign(observed: Observed, lab: Lab) -> None:
    choose = "choose another lab_bridge in the inventory"
    for name in lab.bridges:
        if not _VNET.fullmatch(name):
            raise LabError(
                f"lab_bridge {name!r} cannot be a vnet; allowed: two to eight letters and digits", choose
            )
        for node in lab.nodes:
            if name in observed.nodes[node].bridges:
                hint = f"{choose}; if the bridge is from this lab when it was on one node: dasklab destroy"
                raise LabError(f"node {node} has a bridge {name!r}, the name of the lab's vnet", hint)
        vnet = observed.sdn.vnets.get(name)
        if vnet and not (_is_own(vnet, lab) and vnet["zone"] == lab.zone):
            raise LabError(f"there is a vnet {name!r} that is not this lab's", choose)
    if lab.zone in observed.sdn.zones and not _is_own_zone(observed, lab):
        raise LabError(f"there is a zone {lab.zone!r} that is not this lab's", "choose another lab_name")


def _refuse_changes_of_others(observed: Observed, lab: Lab) -> None:
    """Refuse if others have pending changes: an apply covers all zones and reloads every node's network."""
    waiting = [f"zone {other}" for other in sorted(observed.sdn.waiting - {lab.zone})]
    waiting += [
        f"{interface} on node {name}" for name, node in observed.nodes.items() for interface in node.pending
    ]
    if waiting:
        raise LabError(
            f"there are network changes that are not applied yet ({', '.join(waiting)}); "
            "an apply would include them together with the lab's vnet",
            "apply or revert them first (web interface: Datacenter > SDN, node > System > Network)",
        )
