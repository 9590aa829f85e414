"""Load over time of the node, its storage and its guests, for charts."""

from __future__ import annotations

import time
from typing import Any

from minipve.api.routing import CT, VM, route
from minipve.config import volume_ids
from minipve.node.call import Call


def _rows(call: Call, name: str) -> list[dict[str, Any]]:
    cf = call.get("cf", "AVERAGE")
    return list(call.node.history.rows(name, call["timeframe"], cf, time.time()))


@route("GET", "/nodes/{node}/rrddata")
def node(call: Call) -> list[dict[str, Any]]:
    return _rows(call, "node")


@route("GET", "/nodes/{node}/storage/{storage}/rrddata")
def store(call: Call) -> list[dict[str, Any]]:
    """Return the usage of the storage over time."""
    volume_ids.check_exists(call["storage"])
    return _rows(call, "storage")


@route("GET", f"{VM}/rrddata")
def machine(call: Call) -> list[dict[str, Any]]:
    call.node.vms.load(call.vmid)
    return _rows(call, f"qemu/{call.vmid}")


@route("GET", f"{CT}/rrddata")
def container(call: Call) -> list[dict[str, Any]]:
    call.node.containers.load(call.vmid)
    return _rows(call, f"lxc/{call.vmid}")
