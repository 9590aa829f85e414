"""The cluster's zones, vnets and subnets: configuration, lock, and apply on every node."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minipve.access import permissions
from minipve.access.accounts import ROOT
from minipve.api.nodes import network
from minipve.api.routing import route
from minipve.base.errors import ApiError, UnreachedError, error_prefix, parameter_error
from minipve.config.rules.formats import split_list
from minipve.network import guest_ports
from minipve.network.sdn import SUBNETS, VNETS, ZONES, Document, Options
from minipve.node.call import Call
from minipve.node.tasks import Task

# The cluster's zones and vnets: configuration, and apply on every node. Subnets are in sdn_subnets.py.

SDN = "/cluster/sdn"
_ZONE, VNET = f"{SDN}/zones/{{zone}}", f"{SDN}/vnets/{{vnet}}"
SEE = ("SDN.Audit", "SDN.Allocate")
_CONTROL = ("digest", "delete", "lock-token", "pending", "running", "release-lock")
_COMMON = {"type", "nodes", "mtu", "ipam", "dns", "dnszone", "reversedns"}
_TAKES = {"simple": _COMMON | {"dhcp"}, "vxlan": _COMMON | {"peers", "fabric", "vxlan-port"}}
_VNETS_PM, _ZONES_PM = "API2/Network/SDN/Vnets.pm line 326", "Network/SDN/Zones/Plugin.pm line 149"


@contextmanager
def editing(call: Call, failure: str) -> Iterator[Document]:
    """Edit a copy of the configuration, with the call's lock token. Errors start with ``failure``."""
    with error_prefix(f"{failure}: "), call.node.sdn.change(call.get("lock-token")) as draft:
        yield draft


@route("GET", SDN)
def index(call: Call) -> list[dict[str, str]]:
    return [{"id": name} for name in ("vnets", "zones", "controllers", "ipams", "dns", "fabrics")]


@route("GET", f"{SDN}/zones")
def zones(call: Call) -> list[Options]:
    """Return the zones that the caller may see."""
    rows = [row for row in _rows(call, ZONES) if call.get("type") in (None, row["type"])]
    return [row for row in rows if call.permit.has(acl_path(row), SEE, any_of=True)]


@route("GET", f"{SDN}/vnets")
def vnets(call: Call) -> list[Options]:
    """Return the vnets that the caller may see."""
    return [row for row in _rows(call, VNETS) if call.permit.has(acl_path(row), SEE, any_of=True)]


def _rows(call: Call, area: str) -> list[Options]:
    return list(call.node.sdn.rows(area, view_of(call)).values())


def view_of(call: Call) -> str:
    return next((view for view in ("pending", "running") if call.get(view)), "")


def acl_path(row: Options) -> str:
    """Return the access-control path of a zone or vnet."""
    zone = row.get("zone") or row["pending"]["zone"]
    return f"/sdn/zones/{zone}" + (f"/{row['vnet']}" if "vnet" in row else "")


@route("GET", _ZONE)
def zone(call: Call) -> Options:
    rows = call.node.sdn.rows(ZONES, view_of(call))
    if call["zone"] not in rows:
        raise ApiError(f"sdn '{call['zone']}' does not exist")
    return rows[call["zone"]]


@route("GET", VNET)
def vnet(call: Call) -> Options:
    rows = call.node.sdn.rows(VNETS, view_of(call))
    if call["vnet"] not in rows:
        raise no_vnet(call)
    call.permit.require(acl_path(rows[call["vnet"]]), SEE, any_of=True)
    return rows[call["vnet"]]


def no_vnet(call: Call) -> ApiError:
    return ApiError(f"sdn vnet '{call['vnet']}' does not exist")


@route("POST", f"{SDN}/zones")
def create_zone(call: Call) -> None:
    """Add a zone. An apply creates it."""
    options = options_of(call, "zone")
    _check_keys(options)
    with editing(call, "create sdn zone object failed") as draft:
        if call["zone"] in draft[ZONES]:
            raise ApiError(f"sdn zone object ID '{call['zone']}' already defined")
        _check_zone(options)
        draft[ZONES][call["zone"]] = options


@route("PUT", _ZONE)
def change_zone(call: Call) -> None:
    """Change a zone. An apply brings the change into force."""
    with editing(call, "update sdn zone object failed") as draft:
        if call["zone"] not in draft[ZONES]:
            raise ApiError(f"sdn '{call['zone']}' does not exist")
        changed = change_object(call, ZONES, call["zone"], draft)
        _check_keys(changed)
        _check_zone(changed)


def _check_keys(options: Options) -> None:
    kind = options["type"]
    if kind not in _TAKES:
        raise ApiError(f"zones of type '{kind}' are not supported here, only {' and '.join(_TAKES)}")
    if surplus := sorted(options.keys() - _TAKES[kind]):
        raise ApiError(f"unexpected property '{surplus[0]}'")
    if "fabric" in options:
        raise ApiError("fabrics are not supported here, name the peers")


def _check_zone(options: Options) -> None:
    if options["type"] == "vxlan" and "peers" not in options:
        raise invalid("must have exactly one of peers / fabric defined", "peers", "fabric")


def invalid(text: str, *names: str) -> ApiError:
    return ApiError("Parameter verification failed.", 400, dict.fromkeys(names, text))


@route("DELETE", _ZONE)
def delete_zone(call: Call) -> None:
    """Remove a zone without vnets. An apply deletes it."""
    name = call["zone"]
    with editing(call, "delete sdn zone object failed") as draft:
        if name not in draft[ZONES]:
            raise ApiError(f"sdn '{name}' does not exist")
        for vnet, options in draft[VNETS].items():
            if options["zone"] == name:
                raise ApiError(f"zone {name} is used by vnet {vnet} at /usr/share/perl5/PVE/{_ZONES_PM}.")
        del draft[ZONES][name]


@route("POST", f"{SDN}/vnets")
def create_vnet(call: Call) -> None:
    """Add a vnet. An apply creates it as a bridge of the same name on each node of its zone."""
    options = {"type": "vnet", **options_of(call, "vnet")}
    with editing(call, "create sdn vnet object failed") as draft:
        if call["vnet"] in draft[VNETS]:
            raise ApiError(f"sdn vnet object ID '{call['vnet']}' already defined")
        _check_vnet(call["vnet"], options, draft)
        draft[VNETS][call["vnet"]] = options


@route("PUT", VNET)
def change_vnet(call: Call) -> None:
    """Change a vnet. An apply brings the change into force."""
    need_vnet(call, call.node.sdn.data)
    if "zone" in call.params:
        call.permit.need_right(permissions.NEW_ZONE, zone=call["zone"])
    with editing(call, "update sdn vnet object failed") as draft:
        need_vnet(call, draft)  # again: it may have moved since
        old_zone = draft[VNETS][call["vnet"]]["zone"]
        changed = change_object(call, VNETS, call["vnet"], draft)
        if "zone" not in changed:
            raise invalid("cannot delete zone", "zone")
        if changed["zone"] != old_zone and subnets_of(draft, call["vnet"]):
            raise invalid("can't change zone if subnets exist", "zone")
        _check_vnet(call["vnet"], changed, draft)


@route("DELETE", VNET)
def delete_vnet(call: Call) -> None:
    """Remove a vnet without subnets. An apply deletes it, even when guests are connected to it."""
    need_vnet(call, call.node.sdn.data)
    with editing(call, "delete sdn vnet object failed") as draft:
        if subnets_of(draft, call["vnet"]):
            raise invalid("Can't delete vnet if subnets exists", "vnet")
        draft[VNETS].pop(call["vnet"], None)


def subnets_of(draft: Mapping[str, Any], vnet: str) -> list[str]:
    """Return the ids of a vnet's subnets."""
    return [name for name, subnet in draft[SUBNETS].items() if subnet["vnet"] == vnet]


def need_vnet(call: Call, draft: Document) -> None:
    """Raise 500 when the vnet does not exist, 403 when the caller may not change it."""
    if call["vnet"] not in draft[VNETS]:
        raise no_vnet(call)
    call.permit.need_right(permissions.VNET, zone=draft[VNETS][call["vnet"]]["zone"], vnet=call["vnet"])


def _check_vnet(name: str, options: Options, draft: Mapping[str, Any]) -> None:
    zone = draft[ZONES].get(options["zone"])
    if zone is None:
        raise ApiError(f"cannot lookup undefined type! at /usr/share/perl5/PVE/{_VNETS_PM}.")
    _check_vlan_aware(name, options, draft)
    if zone["type"] == "simple":
        if "tag" in options:
            raise invalid("vlan tag is not allowed on simple zone", "tag")
        return
    if "tag" not in options:
        raise invalid("missing vxlan tag", "tag")
    for other, vnet in draft[VNETS].items():
        if other != name and vnet.get("tag") == options["tag"]:
            where = f"vnet {other} in zone {vnet['zone']} "
            raise invalid(f"vxlan tag {options['tag']} already exist in {where}", "tag")


def _check_vlan_aware(name: str, options: Options, draft: Mapping[str, Any]) -> None:
    if options.get("vlanaware"):
        if subnets_of(draft, name):
            raise invalid("vlanaware vnet is not compatible with subnets", "vlanaware")
        if not guest_ports.supported():
            raise invalid(guest_ports.UNSUPPORTED, "vlanaware")


def options_of(call: Call, name: str) -> Options:
    return {key: value for key, value in call.params.items() if key not in (*_CONTROL, name)}


def change_object(call: Call, area: str, name: str, draft: Document) -> Options:
    """Apply the changes of a call to an object of the draft, and return the object."""
    if call.get("digest", mark := call.node.sdn.digest(area)) != mark:
        raise ApiError("detected modified configuration - file changed by other user? Try again.")
    changed: Options = draft[area][name]
    for key in split_list(call.get("delete", "")):
        changed.pop(key, None)
    changed |= options_of(call, area.removesuffix("s"))
    return changed


@route("PUT", SDN)
def apply(call: Call) -> str:
    """Apply the configuration on every node (task ``reloadnetworkall``, and one task on each node)."""
    with error_prefix("could not commit SDN config: "):
        call.node.sdn.apply(call.get("lock-token"), bool(call.get("release-lock", 1)))

    def work(task: Task) -> None:
        for node in call.node.nodes.values():
            task.log(f"{node.name}: reloading network config")
            task.log("" if node.is_up else f"{UnreachedError.status} {UnreachedError.reason}")
            if node.is_up:
                node.tasks.start("srvreload", "networking", ROOT, network.reloading(node))

    return call.start("reloadnetworkall", "", work)


@route("GET", "/cluster/sdn/ipams")
def ipams(call: Call) -> list[dict[str, Any]]:
    """Return PVE's own address management, which has no addresses here."""
    return [{"ipam": "pve", "type": "pve", "digest": None}]


# The global lock of the SDN configuration, and the rollback of pending changes.


@route("POST", f"{SDN}/lock")
def lock(call: Call) -> str:
    """Lock the configuration. Changes then need the token that this returns."""
    with error_prefix("could not acquire lock for SDN config: "):
        return call.node.sdn.lock(bool(call.get("allow-pending")))


@route("DELETE", f"{SDN}/lock")
def unlock(call: Call) -> None:
    """Remove the lock, with its token or with ``force``."""
    with error_prefix("could not release lock: "):
        call.node.sdn.unlock(call.get("lock-token"), bool(call.get("force")))


@route("POST", f"{SDN}/rollback")
def rollback(call: Call) -> None:
    with error_prefix("could not rollback SDN configuration: "):
        call.node.sdn.rollback(call.get("lock-token"), bool(call.get("release-lock", 1)))


# Subnets of vnets. In a simple zone, the gateway of a subnet is an address of the vnet's bridge.

_ALL, _ONE = f"{VNET}/subnets", f"{VNET}/subnets/{{subnet}}"


def _check_visible(call: Call) -> None:
    """Raise 500 when the vnet does not exist, 403 when the caller may not see it."""
    vnets: dict[str, Options] = call.node.sdn.data[VNETS]
    if call["vnet"] not in vnets:
        raise no_vnet(call)
    call.permit.require(acl_path({"vnet": call["vnet"], **vnets[call["vnet"]]}), SEE, any_of=True)


def _row(row: Options) -> Options:
    """Add what PVE derives from a subnet's id, such as ``lab-10.0.0.0-24``."""
    zone, network, mask = row["subnet"].split("-")
    return row | {
        "id": row["subnet"],
        "zone": zone,
        "network": network,
        "mask": mask,
        "cidr": f"{network}/{mask}",
    }


def _is_of(vnet: str, row: Options) -> bool:
    return vnet in (row.get("vnet"), row.get("pending", {}).get("vnet"))


@route("GET", _ALL)
def list_subnets(call: Call) -> list[Options]:
    """Return the subnets of a vnet."""
    _check_visible(call)
    rows = call.node.sdn.rows(SUBNETS, view_of(call)).values()
    return [_row(row) for row in rows if _is_of(call["vnet"], row)]


@route("GET", _ONE)
def read(call: Call) -> Options:
    _check_visible(call)
    return _row(_of_vnet(call, call.node.sdn.rows(SUBNETS, view_of(call))))


def _of_vnet(call: Call, subnets: Mapping[str, Options]) -> Options:
    """Return the subnet of a call. It must belong to the vnet in the path, on which the caller has rights."""
    subnet = subnets.get(call["subnet"])
    if subnet is None:
        raise ApiError(f"sdn subnet '{call['subnet']}' does not exist")
    if not _is_of(call["vnet"], subnet):
        raise parameter_error(vnet="wrong vnet")
    return subnet


@route("POST", _ALL)
def create(call: Call) -> None:
    """Add a subnet. An apply brings it into force."""
    need_vnet(call, call.node.sdn.data)
    name = f"{call.node.sdn.data[VNETS][call['vnet']]['zone']}-{call['subnet'].replace('/', '-')}"
    with editing(call, "create sdn subnet object failed") as draft:
        if name in draft[SUBNETS]:
            raise ApiError(f"sdn subnet object ID '{name}' already defined")
        draft[SUBNETS][name] = options = {"type": "subnet", **options_of(call, "subnet")}
        _check(name, options, draft)


@route("PUT", _ONE)
def update(call: Call) -> None:
    """Change a subnet. An apply brings the change into force."""
    need_vnet(call, call.node.sdn.data)
    with editing(call, "update sdn subnet object failed") as draft:
        _of_vnet(call, draft[SUBNETS])
        _check(call["subnet"], change_object(call, SUBNETS, call["subnet"], draft), draft)


@route("DELETE", _ONE)
def delete(call: Call) -> None:
    """Remove a subnet. An apply brings the removal into force."""
    need_vnet(call, call.node.sdn.data)
    with editing(call, "delete sdn subnet object failed") as draft:
        _of_vnet(call, draft[SUBNETS])
        del draft[SUBNETS][call["subnet"]]


def _check(name: str, options: Options, draft: Document) -> None:
    """Raise PVE's errors for an invalid subnet, and 400 for what minipve does not support."""
    vnet = draft[VNETS][options["vnet"]]
    if vnet.get("vlanaware"):
        raise invalid("you can't add a subnet on a vlanaware vnet", "vnet")
    for key in ("dhcp-range", "dhcp-dns-server", "dnszoneprefix"):
        if options.get(key):
            raise invalid("not supported here", key)
    if gateway := options.get("gateway"):
        cidr = _row({"subnet": name})["cidr"]
        if ipaddress.ip_address(gateway) not in ipaddress.ip_network(cidr):
            raise invalid(f"{gateway} is not in subnet {cidr}", "gateway")
        _check_single_gateway(options, draft)


def _check_single_gateway(options: Mapping[str, Any], draft: Document) -> None:
    gateways = [draft[SUBNETS][other].get("gateway") for other in subnets_of(draft, options["vnet"])]
    if len(list(filter(None, gateways))) > 1:
        raise invalid("only one subnet of a vnet can have a gateway here", "gateway")
    if ipaddress.ip_address(options["gateway"]).version != 4:
        raise invalid("only an IPv4 address is supported here", "gateway")
