"""The rows that lists show of a container."""

from __future__ import annotations

from typing import Any

from minipve import host
from minipve.config import values
from minipve.config.store import GuestConfig
from minipve.container import options
from minipve.lxc import rootfs, running
from minipve.node import Node

_RESOURCE = (
    "vmid", "name", "status", "uptime", "cpu", "mem", "maxmem", "disk", "maxdisk", "netin", "netout",
    "diskread", "diskwrite",
)  # fmt: skip


def row(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """A container as ``GET /nodes/{node}/lxc`` shows it."""
    state, given = running.state(vmid, node.paths), config.options
    memory, swap = values.container_memory_mib(given)
    cpus = min(int(given.get("cores", host.cpus())), host.cpus())
    told: dict[str, Any] = {
        "type": "lxc",
        "vmid": vmid,
        "name": given.get("hostname", f"CT{vmid}"),
        "status": state.status,
        "cpus": cpus,
        "maxmem": memory * 2**20,
        "maxswap": swap * 2**20,
        "maxdisk": options.rootfs_bytes(given),
        "disk": rootfs.used_bytes(vmid, node.paths) if state.pid else 0,
        "cpu": state.cpu / cpus,
        "mem": state.mem_bytes,
        "swap": 0,
        "uptime": state.uptime_s,
        "netin": sum(nic["netin"] for nic in state.nics.values()),
        "netout": sum(nic["netout"] for nic in state.nics.values()),
        "diskread": 0,
        "diskwrite": 0,
    }
    if state.pid:
        told |= {"pid": state.pid} | dict.fromkeys(host.PRESSURES)  # null, as on a node
    if config.is_template:
        told["template"] = 1
    return told | {key: given[key] for key in ("tags", "lock") if key in given}


def status(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """A container as ``GET .../status/current`` shows it."""
    return row(node, vmid, config) | {"ha": {"managed": 0}}


def resource(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """A container among the cluster's resources and a pool's members."""
    told = row(node, vmid, config)
    named = {"id": f"lxc/{vmid}", "type": "lxc", "node": node.name, "template": told.get("template", 0)}
    return named | {"maxcpu": told["cpus"], "memhost": told["mem"]} | {key: told[key] for key in _RESOURCE}
