"""The nodes: list, state and version."""

from __future__ import annotations

import os
from typing import Any

from minipve.api.routing import route
from minipve.base import host
from minipve.guests.vm import summary
from minipve.http import tls
from minipve.node import node as node_module
from minipve.node.call import Call


@route("GET", "/nodes")
def index(call: Call) -> list[dict[str, Any]]:
    """Return the nodes. Their load is only for callers with Sys.Audit, as in PVE."""
    fingerprint = {"ssl_fingerprint": tls.fingerprint(call.node.cluster)}
    rows = [summary.node_row(node) | fingerprint for node in call.node.nodes.values()]
    return [row if call.permit.has(f"/nodes/{row['node']}", ["Sys.Audit"]) else _brief(row) for row in rows]


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("id", "node", "type", "status", "ssl_fingerprint", "level")}


@route("GET", "/nodes/{node}/status")
def status(call: Call) -> dict[str, Any]:
    """Return CPU, memory, load and kernel of the machine."""
    kernel = host.kernel()
    version = node_module.VERSION
    return {
        "cpu": host.cpu_fraction(),
        "cpuinfo": host.cpu_info(),
        "memory": host.memory(),
        "swap": host.swap(),
        "rootfs": host.root_filesystem(),
        "loadavg": [f"{load:.2f}" for load in os.getloadavg()],
        "uptime": host.uptime_s(),
        "idle": 0,
        "wait": 0,
        "ksm": {"shared": 0},
        "boot-info": {"mode": "legacy-bios"},
        "current-kernel": kernel,
        "kversion": f"{kernel['sysname']} {kernel['release']} {kernel['version']}",
        "pveversion": f"pve-manager/{version['version']}/{version['repoid']}",
    }


@route("GET", "/nodes/{node}/version")
def version(call: Call) -> dict[str, str]:
    return node_module.VERSION


@route("GET", "/nodes/{node}/subscription")
def subscription(call: Call) -> dict[str, Any]:
    return {"status": "notfound", "message": "There is no subscription key"}
