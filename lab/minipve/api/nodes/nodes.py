"""The nodes: list, state, settings and load over time."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from minipve.api.routing import CT, VM, route
from minipve.base import host
from minipve.base.atomic import write_atomic
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives
from minipve.config.rules.formats import split_list
from minipve.config.rules.schema import LXC
from minipve.guests.vm import summary
from minipve.http import tls
from minipve.node import node as node_module
from minipve.node.call import Call
from minipve.node.node import Node

# The nodes: list, state and version.


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


# Settings of a node: configuration, DNS, hosts, time zone, services. They have no effect on this machine.

_NODE = "/nodes/{node}"
_CONTROL = {"node", "digest", "delete", "property"}
_SUPPORTED = {"description"}
_HOSTS = Path("/etc/hosts")
_SERVICES = {
    "pve-cluster": "The Proxmox VE cluster filesystem",
    "pvedaemon": "PVE API Daemon",
    "pveproxy": "PVE API Proxy Server",
    "pvestatd": "PVE Status Daemon",
}
"""The services whose work minipve does."""
NodeSettings = dict[str, Any]
_lock = threading.Lock()


@route("GET", f"{_NODE}/config")
def config(call: Call) -> dict[str, Any]:
    """Return the node's configuration, or one property of it."""
    settings = _load(call.node)
    digest = {"digest": _digest(settings)}
    if name := call.get("property"):
        return digest | ({name: settings["config"][name]} if name in settings["config"] else {})
    return dict(settings["config"]) | digest


@route("PUT", f"{_NODE}/config")
def update_config(call: Call) -> None:
    """Change the description, the only property without an effect on the node itself."""
    changed = {key: value for key, value in call.params.items() if key not in _CONTROL}
    if unsupported := sorted(changed.keys() - _SUPPORTED):
        raise parameter_error(**dict.fromkeys(unsupported, "not supported here"))
    with _change(call.node) as settings:
        if call.get("digest") not in (None, _digest(settings)):
            raise ApiError(LXC.modified)
        for name in split_list(call.get("delete", "")):
            settings["config"].pop(name, None)
        settings["config"] |= changed


@route("GET", f"{_NODE}/dns")
def dns(call: Call) -> dict[str, str]:
    settings: dict[str, str] = _load(call.node)["dns"]
    return settings


@route("PUT", f"{_NODE}/dns")
def update_dns(call: Call) -> None:
    """Store the search domain and the servers, which minipve does not use."""
    with _change(call.node) as settings:
        settings["dns"] = {key: value for key, value in call.params.items() if key != "node"}


@route("GET", f"{_NODE}/hosts")
def hosts(call: Call) -> dict[str, str]:
    """Return the machine's /etc/hosts, with which all nodes resolve names."""
    data = _HOSTS.read_bytes()
    return {"data": data.decode(errors="replace"), "digest": hashlib.sha1(data).hexdigest()}


@route("GET", f"{_NODE}/time")
def read_time(call: Call) -> dict[str, Any]:
    """Return the time in UTC, and in the node's time zone as if that were UTC."""
    name, now = _load(call.node)["timezone"], int(time.time())
    offset = datetime.fromtimestamp(now, zoneinfo.ZoneInfo(name)).utcoffset()
    local = now + int(offset.total_seconds()) if offset else now
    return {"timezone": name, "time": now, "localtime": local}


@route("PUT", f"{_NODE}/time")
def update_time(call: Call) -> None:
    """Set the time zone, in which only ``GET .../time`` shows the time."""
    if call["timezone"] not in zoneinfo.available_timezones():
        raise ApiError(f"No such timezone: '{call['timezone']}'")
    with _change(call.node) as settings:
        settings["timezone"] = call["timezone"]


def _service(name: str) -> dict[str, str]:
    state = {"state": "running", "active-state": "active", "unit-state": "enabled"}
    return {"service": name, "name": name, "desc": _SERVICES[name]} | state


@route("GET", f"{_NODE}/services")
def services(call: Call) -> list[dict[str, str]]:
    return [_service(name) for name in _SERVICES]


@route("GET", f"{_NODE}/services/{{service}}")
def service(call: Call) -> list[dict[str, str]]:
    """Return the implemented names below a service."""
    return [{"subdir": "state"}]


@route("GET", f"{_NODE}/services/{{service}}/state")
def service_state(call: Call) -> dict[str, str]:
    """Return the state of a service. Others than ``_SERVICES`` do not exist here."""
    if call["service"] not in _SERVICES:
        name = call["service"]
        return {"service": name, "name": name, "desc": name, "state": "unknown", "unit-state": "not-found"}
    return _service(call["service"])


def _load(node: Node) -> NodeSettings:
    """Return the settings: ``config``, ``dns`` and ``timezone``."""
    defaults: NodeSettings = {"config": {}, "dns": {}, "timezone": "Etc/UTC"}
    try:
        return defaults | dict(json.loads(_file(node).read_bytes()))
    except FileNotFoundError:
        return defaults


@contextmanager
def _change(node: Node) -> Iterator[NodeSettings]:
    """Yield the settings, and save them unless the block fails."""
    with _lock:
        settings = _load(node)
        yield settings
        write_atomic(_file(node), json.dumps(settings, indent=1) + "\n")


def _digest(settings: NodeSettings) -> str:
    """Return SHA-1 over the configuration."""
    text = json.dumps(settings["config"], sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _file(node: Node) -> Path:
    return node.paths.state / "etc" / "node.json"


# Load over time of the node, its storage and its guests, for charts.


def _rows(call: Call, name: str) -> list[dict[str, Any]]:
    cf = call.get("cf", "AVERAGE")
    return list(call.node.history.rows(name, call["timeframe"], cf, time.time()))


@route("GET", "/nodes/{node}/rrddata")
def node(call: Call) -> list[dict[str, Any]]:
    return _rows(call, "node")


@route("GET", "/nodes/{node}/storage/{storage}/rrddata")
def store(call: Call) -> list[dict[str, Any]]:
    """Return the usage of the storage over time."""
    drives.check_exists(call["storage"])
    return _rows(call, "storage")


@route("GET", f"{VM}/rrddata")
def machine(call: Call) -> list[dict[str, Any]]:
    call.node.vms.load(call.vmid)
    return _rows(call, f"qemu/{call.vmid}")


@route("GET", f"{CT}/rrddata")
def container(call: Call) -> list[dict[str, Any]]:
    call.node.containers.load(call.vmid)
    return _rows(call, f"lxc/{call.vmid}")
