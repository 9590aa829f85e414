"""The node's network: bridges in the interfaces file, and the zones and vnets that run."""

from __future__ import annotations

import difflib
import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import Any

from minipve.api.routing import route
from minipve.base.atomic import write_atomic
from minipve.base.errors import ApiError, parameter_error
from minipve.config.rules.formats import split_list
from minipve.network import bridges, guest_ports, links, sdn
from minipve.network.interfaces import Iface, bridge, load, write_interfaces
from minipve.node.call import Call, Reply
from minipve.node.node import Node
from minipve.node.tasks import Task, Work

# The node's network: bridges in the interfaces file. As in PVE, changes wait for a reload.

_NETWORK = "/nodes/{node}/network"
_WITH_VNETS = ("any_bridge", "include_sdn", "vnet")


def _new_file(node: Node) -> Path:
    return node.paths.interfaces.with_name("interfaces.new")


def _configured(node: Node) -> dict[str, Iface]:
    """Return the configuration with the changes that wait for a reload."""
    file = _new_file(node)
    return load(file if file.exists() else node.paths.interfaces)


def _store(node: Node, interfaces: dict[str, Iface]) -> None:
    write_atomic(_new_file(node), write_interfaces(interfaces), 0o644)


def _changes(node: Node) -> str:
    file, new = node.paths.interfaces, _new_file(node)
    if not new.exists():
        return ""
    before, after = (f.read_text(errors="replace").splitlines(keepends=True) for f in (file, new))
    name = "/etc/network/interfaces"
    return "".join(difflib.unified_diff(before, after, name, f"{name}.new"))


def _row(iface: Iface, priority: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "iface": iface.name,
        "type": "bridge" if iface.is_bridge else "loopback" if iface.method == "loopback" else "eth",
        "method": iface.method,
        "method6": "manual",
        "families": ["inet"],
        "priority": priority,
    }
    row |= {"autostart": 1} if iface.auto else {}
    row |= {"active": 1} if links.exists(iface.name) else {}
    if iface.address:
        address = ipaddress.ip_interface(iface.address)
        row |= {"cidr": iface.address, "address": str(address.ip), "netmask": str(address.network.prefixlen)}
    if iface.is_bridge:
        row["bridge_ports"] = "" if iface.ports == "none" else iface.ports
    texts = {
        "gateway": iface.gateway,
        "mtu": iface.mtu,
        "bridge_stp": iface.stp,
        "bridge_fd": iface.forward_delay,
    }
    texts |= {"comments": iface.comments, "bridge_vids": iface.vids}
    row |= {key: value for key, value in texts.items() if value}
    row |= {"bridge_vlan_aware": 1} if iface.is_vlan_aware else {}
    return row | ({"options": list(iface.options)} if iface.options else {})


@route("GET", _NETWORK)
def index(call: Call) -> Reply:
    """Return all interfaces, and the changes that wait for a reload."""
    row_type = call.get("type")
    kinds = {"any_bridge": "bridge", "any_local_bridge": "bridge", "include_sdn": None}
    rows = [_row(iface, i) for i, iface in enumerate(_configured(call.node).values(), 2)]
    rows = [row for row in rows if row["type"] != "bridge" or _sees(call, row["iface"])]
    rows = [r for r in rows if r["type"] != "loopback" and kinds.get(row_type, row_type) in (None, r["type"])]
    rows += _vnets(call) if row_type in _WITH_VNETS else []
    changes = _changes(call.node)
    return Reply(rows, {"changes": changes} if changes else {})


def _vnets(call: Call) -> list[dict[str, Any]]:
    """Return the vnets of the last apply, whether they are up or not."""
    return [
        {"iface": name, "type": "vnet", "active": "1", "comments": vnet.get("alias"), "ipam": 0}
        | {"vlanaware": vnet.get("vlanaware", 0)}
        for name, vnet, _ in sdn.on_node(call.node.sdn.running, call.node.name)
        if _sees(call, name)
    ]


def _sees(call: Call, bridge: str) -> bool:
    """Return whether the caller may use the bridge or one of its VLANs."""
    path = f"/sdn/zones/{call.permit.zone_of(bridge)}/{bridge}"
    privileges = ["SDN.Audit", "SDN.Use"]
    vlans = {a["path"] for a in call.node.access.data["acl"] if a["path"].startswith(f"{path}/")}
    return any(call.permit.has(place, privileges, any_of=True) for place in (path, *vlans))


@route("GET", _NETWORK + "/{iface}")
def read(call: Call) -> dict[str, Any]:
    for priority, iface in enumerate(_configured(call.node).values(), 2):
        if iface.name == call["iface"]:
            row = _row(iface, priority)
            del row["iface"]
            return row
    raise parameter_error(iface="interface does not exist")


def _from_call(call: Call, old: Iface | None) -> Iface:
    """Build the bridge of a call. Options that the API cannot express are copied from ``old``."""
    if call["type"] != "bridge":
        raise parameter_error(
            type=f"interfaces of type '{call['type']}' are not supported here, only bridges"
        )
    if call.get("bridge_ports"):
        raise parameter_error(bridge_ports="a bridge in this endpoint's own namespace has no physical ports")
    if call.get("bridge_vlan_aware") and not guest_ports.supported():
        raise parameter_error(bridge_vlan_aware=guest_ports.UNSUPPORTED)
    address = call.get("cidr", "")
    if "address" in call.params:
        address = f"{call['address']}/{ipaddress.ip_network('0.0.0.0/' + call['netmask']).prefixlen}"
    comments = str(call.get("comments", "")).rstrip("\n")
    new = bridge(call["iface"], address, comments + "\n" if comments else "")
    return replace(
        new,
        auto=bool(call.get("autostart")),
        gateway=call.get("gateway", ""),
        mtu=str(call.get("mtu", "")),
        vlan_aware="yes" if call.get("bridge_vlan_aware") else "",
        vids=call.get("bridge_vids", guest_ports.DEFAULT_VIDS if call.get("bridge_vlan_aware") else ""),
        options=old.options if old else (),
    )


@route("POST", _NETWORK)
def create(call: Call) -> None:
    """Add a bridge. The next reload creates it."""
    with call.node.network_lock:
        interfaces = _configured(call.node)
        if call["iface"] in interfaces:
            raise parameter_error(iface="interface already exists")
        if len(call["iface"]) > 15:
            raise parameter_error(iface="interface name is longer than the kernel's 15 characters")
        _store(call.node, interfaces | {call["iface"]: _from_call(call, None)})


@route("PUT", _NETWORK + "/{iface}")
def update(call: Call) -> None:
    """Change a bridge. The next reload applies the change. What the call does not name stays, as in PVE."""
    with call.node.network_lock:
        interfaces = _configured(call.node)
        if (old := interfaces.get(call["iface"])) is None:
            raise parameter_error(iface="interface does not exist")
        deleted = {
            "cidr" if name in ("address", "netmask") else name for name in split_list(call.get("delete", ""))
        }
        stored = {
            key: value for key, value in _row(old, 0).items() if key not in ("address", "netmask", *deleted)
        }
        merged = replace(call, params=stored | call.params)
        _store(call.node, interfaces | {old.name: _from_call(merged, old)})


@route("DELETE", _NETWORK + "/{iface}")
def delete(call: Call) -> None:
    """Remove a bridge. The next reload deletes it."""
    with call.node.network_lock:
        interfaces = _configured(call.node)
        if interfaces.pop(call["iface"], None) is None:
            raise parameter_error(iface="interface does not exist")
        _store(call.node, interfaces)


@route("DELETE", _NETWORK)
def revert(call: Call) -> None:
    """Discard the changes that wait for a reload."""
    with call.node.network_lock:
        _new_file(call.node).unlink(missing_ok=True)


@route("PUT", _NETWORK)
def reload(call: Call) -> str:
    """Apply the configuration to the network (task ``srvreload``)."""
    return call.start("srvreload", "networking", reloading(call.node))


def reloading(node: Node) -> Work:
    """Return the work of a reload: apply the waiting changes and the vnets of the last apply."""

    def work(task: Task) -> None:
        with node.network_lock:
            new = _new_file(node)
            if new.exists():
                new.replace(node.paths.interfaces)
            sdn.write(node.paths.interfaces, node.sdn.running, node.name)
            bridges.reload(node.paths, node.name)

    return work


# The running zones and vnets of a node, as of the last apply.

_ZONES = "/nodes/{node}/sdn/zones"


def _on_node(call: Call) -> dict[str, list[str]]:
    """Return zone -> its vnets on this node."""
    running = call.node.sdn.running
    vnets_of: dict[str, list[str]] = {name: [] for name in sorted(running[sdn.ZONES])}
    for name, vnet, _ in sdn.on_node(running, call.node.name):
        vnets_of[vnet["zone"]].append(name)
    return vnets_of


@route("GET", _ZONES)
def zones(call: Call) -> list[dict[str, str]]:
    """Return the running zones. A zone is available when all its vnets are."""
    return [
        {"zone": zone, "status": "available" if all(map(links.exists, vnets)) else "error"}
        for zone, vnets in _on_node(call).items()
        if call.permit.has(f"/sdn/zones/{zone}", ["SDN.Audit", "SDN.Allocate"], any_of=True)
    ]


@route("GET", f"{_ZONES}/{{zone}}/content")
def content(call: Call) -> list[dict[str, Any]]:
    """Return the vnets of a zone on this node."""
    vnets_of = _on_node(call)
    if call["zone"] not in vnets_of:
        raise ApiError(f"sdn '{call['zone']}' does not exist")
    return [
        {"vnet": name, "status": "available" if links.exists(name) else "error", "statusmsg": None}
        for name in vnets_of[call["zone"]]
    ]
