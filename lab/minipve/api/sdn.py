"""The cluster's zones and vnets: configured here, brought up on every node by an apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minipve.access.accounts import ROOT
from minipve.api import network, route
from minipve.config.formats import split_list
from minipve.errors import ApiError, UnreachedError, error_prefix
from minipve.network.sdn import VNETS, ZONES, Document, Options
from minipve.node import Call
from minipve.tasks import Task

_SDN = "/cluster/sdn"
_ZONE, _VNET = f"{_SDN}/zones/{{zone}}", f"{_SDN}/vnets/{{vnet}}"
_SEE = ("SDN.Audit", "SDN.Allocate")
_CONTROL = ("digest", "delete", "lock-token", "pending", "running", "release-lock")
_COMMON = {"type", "nodes", "mtu", "ipam", "dns", "dnszone", "reversedns"}
_TAKES = {"simple": _COMMON | {"dhcp"}, "vxlan": _COMMON | {"peers", "fabric", "vxlan-port"}}
_VNETS_PM, _ZONES_PM = "API2/Network/SDN/Vnets.pm line 326", "Network/SDN/Zones/Plugin.pm line 149"


@route("GET", _SDN)
def index(call: Call) -> list[dict[str, str]]:
    """What there is below."""
    return [{"id": name} for name in ("vnets", "zones", "controllers", "ipams", "dns", "fabrics")]


@route("GET", f"{_SDN}/zones")
def zones(call: Call) -> list[Options]:
    """The zones that the caller may see."""
    wanted = call.get("type")
    rows = [row for row in _rows(call, ZONES) if wanted in (None, row["type"])]
    return [row for row in rows if call.permit.has(_place(row), _SEE, any_of=True)]


@route("GET", f"{_SDN}/vnets")
def vnets(call: Call) -> list[Options]:
    """The vnets that the caller may see."""
    return [row for row in _rows(call, VNETS) if call.permit.has(_place(row), _SEE, any_of=True)]


def _rows(call: Call, area: str) -> list[Options]:
    return list(call.node.sdn.rows(area, _view(call)).values())


def _view(call: Call) -> str:
    return next((view for view in ("pending", "running") if call.get(view)), "")


def _place(row: Options) -> str:
    """Where rights on a zone or vnet are given."""
    zone = row.get("zone") or row["pending"]["zone"]
    return f"/sdn/zones/{zone}" + (f"/{row['vnet']}" if "vnet" in row else "")


@route("GET", _ZONE)
def zone(call: Call) -> Options:
    """One zone."""
    rows = call.node.sdn.rows(ZONES, _view(call))
    if call["zone"] not in rows:
        raise ApiError(f"sdn '{call['zone']}' does not exist")
    return rows[call["zone"]]


@route("GET", _VNET)
def vnet(call: Call) -> Options:
    """One vnet."""
    rows = call.node.sdn.rows(VNETS, _view(call))
    if call["vnet"] not in rows:
        raise _no_vnet(call)
    call.permit.need(_place(rows[call["vnet"]]), _SEE, any_of=True)
    return rows[call["vnet"]]


def _no_vnet(call: Call) -> ApiError:
    return ApiError(f"sdn vnet '{call['vnet']}' does not exist")


@route("POST", f"{_SDN}/zones")
def create_zone(call: Call) -> None:
    """A new zone; there once applied."""
    given = _given(call, "zone")
    _check_keys(given)
    with error_prefix("create sdn zone object failed: "), call.node.sdn.change() as draft:
        if call["zone"] in draft[ZONES]:
            raise ApiError(f"sdn zone object ID '{call['zone']}' already defined")
        _check_zone(given)
        draft[ZONES][call["zone"]] = given


@route("PUT", _ZONE)
def change_zone(call: Call) -> None:
    """Change a zone; in force once applied."""
    with error_prefix("update sdn zone object failed: "), call.node.sdn.change() as draft:
        if call["zone"] not in draft[ZONES]:
            raise ApiError(f"sdn '{call['zone']}' does not exist")
        changed = _changed(call, ZONES, call["zone"], draft)
        _check_keys(changed)
        _check_zone(changed)


def _check_keys(given: Options) -> None:
    kind = given["type"]
    if kind not in _TAKES:
        raise ApiError(f"zones of type '{kind}' are not supported here, only {' and '.join(_TAKES)}")
    if surplus := sorted(given.keys() - _TAKES[kind]):
        raise ApiError(f"unexpected property '{surplus[0]}'")
    if "fabric" in given:
        raise ApiError("fabrics are not supported here, name the peers")


def _check_zone(given: Options) -> None:
    if given["type"] == "vxlan" and "peers" not in given:
        raise _unfit("must have exactly one of peers / fabric defined", "peers", "fabric")


def _unfit(text: str, *names: str) -> ApiError:
    return ApiError("Parameter verification failed.", 400, dict.fromkeys(names, text))


@route("DELETE", _ZONE)
def delete_zone(call: Call) -> None:
    """Remove a zone without vnets; gone once applied."""
    name = call["zone"]
    with error_prefix("delete sdn zone object failed: "), call.node.sdn.change() as draft:
        if name not in draft[ZONES]:
            raise ApiError(f"sdn '{name}' does not exist")
        for vnet, options in draft[VNETS].items():
            if options["zone"] == name:
                raise ApiError(f"zone {name} is used by vnet {vnet} at /usr/share/perl5/PVE/{_ZONES_PM}.")
        del draft[ZONES][name]


@route("POST", f"{_SDN}/vnets")
def create_vnet(call: Call) -> None:
    """A new vnet, which is a bridge of its name on each node of its zone once applied."""
    given = {"type": "vnet", **_given(call, "vnet")}
    with error_prefix("create sdn vnet object failed: "), call.node.sdn.change() as draft:
        if call["vnet"] in draft[VNETS]:
            raise ApiError(f"sdn vnet object ID '{call['vnet']}' already defined")
        _check_vnet(call["vnet"], given, draft)
        draft[VNETS][call["vnet"]] = given


@route("PUT", _VNET)
def change_vnet(call: Call) -> None:
    """Change a vnet; in force once applied."""
    with error_prefix("update sdn vnet object failed: "), call.node.sdn.change() as draft:
        _need_vnet(call, draft)
        _check_vnet(call["vnet"], _changed(call, VNETS, call["vnet"], draft), draft)


@route("DELETE", _VNET)
def delete_vnet(call: Call) -> None:
    """Remove a vnet; gone once applied, also from under the guests that are on it."""
    with call.node.sdn.change() as draft:
        _need_vnet(call, draft)
        del draft[VNETS][call["vnet"]]


def _need_vnet(call: Call, draft: Document) -> None:
    """It must be there and the caller's to change."""
    if call["vnet"] not in draft[VNETS]:
        raise _no_vnet(call)
    row = {"vnet": call["vnet"], **draft[VNETS][call["vnet"]]}
    call.permit.need(_place(row), ["SDN.Allocate"])


def _check_vnet(name: str, given: Options, draft: Mapping[str, Any]) -> None:
    zone = draft[ZONES].get(given["zone"])
    if zone is None:
        raise ApiError(f"cannot lookup undefined type! at /usr/share/perl5/PVE/{_VNETS_PM}.")
    if zone["type"] == "simple":
        if "tag" in given:
            raise _unfit("vlan tag is not allowed on simple zone", "tag")
        return
    if "tag" not in given:
        raise _unfit("missing vxlan tag", "tag")
    for other, options in draft[VNETS].items():
        if other != name and options.get("tag") == given["tag"]:
            where = f"vnet {other} in zone {options['zone']} "
            raise _unfit(f"vxlan tag {given['tag']} already exist in {where}", "tag")


def _given(call: Call, name: str) -> Options:
    return {key: value for key, value in call.params.items() if key not in (*_CONTROL, name)}


def _changed(call: Call, area: str, name: str, draft: Document) -> Options:
    """The draft's object with the call's changes in it."""
    if call.get("digest", mark := call.node.sdn.digest(area)) != mark:
        raise ApiError("detected modified configuration - file changed by other user? Try again.")
    found: Options = draft[area][name]
    for gone in split_list(call.get("delete", "")):
        found.pop(gone, None)
    found |= _given(call, area.removesuffix("s"))
    return found


@route("PUT", _SDN)
def apply(call: Call) -> str:
    """Bring what is configured up on every node (task ``reloadnetworkall``, and one on each node)."""
    call.node.sdn.apply()

    def work(task: Task) -> None:
        for node in call.node.nodes.values():
            task.log(f"{node.name}: reloading network config")
            task.log("" if node.is_up else f"{UnreachedError.status} {UnreachedError.reason}")
            if node.is_up:
                node.tasks.start("srvreload", "networking", ROOT, network.reloading(node))

    return call.start("reloadnetworkall", "", work)
