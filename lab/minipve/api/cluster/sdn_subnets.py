"""Subnets of vnets. In a simple zone, the gateway of a subnet is an address of the vnet's bridge."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from minipve.api.cluster.sdn import (
    SEE,
    VNET,
    acl_path,
    change_object,
    editing,
    invalid,
    need_vnet,
    no_vnet,
    options_of,
    subnets_of,
    view_of,
)
from minipve.api.routing import route
from minipve.base.errors import ApiError, parameter_error
from minipve.network.sdn import SUBNETS, VNETS, Document, Options
from minipve.node.call import Call

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
def index(call: Call) -> list[Options]:
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
