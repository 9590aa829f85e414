"""A container's rows in the lists that the API returns."""

from __future__ import annotations

from typing import Any

from minipve.base import host
from minipve.config import values
from minipve.config.store import GuestConfig
from minipve.guests.container.options import rootfs_bytes
from minipve.guests.lxc import rootfs, running
from minipve.node.node import Node

_RESOURCE = (
    "vmid", "name", "status", "uptime", "cpu", "mem", "maxmem", "disk", "maxdisk", "netin", "netout",
    "diskread", "diskwrite",
)  # fmt: skip


def row(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a container as ``GET /nodes/{node}/lxc`` shows it."""
    state, options = running.state(vmid, node.paths), config.options
    memory, swap = values.container_memory_mib(options)
    cpus = min(int(options.get("cores", host.cpus())), host.cpus())
    facts: dict[str, Any] = {
        "type": "lxc",
        "vmid": vmid,
        "name": options.get("hostname", f"CT{vmid}"),
        "status": state.status,
        "cpus": cpus,
        "maxmem": memory * 2**20,
        "maxswap": swap * 2**20,
        "maxdisk": rootfs_bytes(options),
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
        facts |= {"pid": state.pid} | dict.fromkeys(host.PRESSURES)  # null, as on a Proxmox VE node
    if config.is_template:
        facts["template"] = 1
    return facts | {key: options[key] for key in ("tags", "lock") if key in options}


def status(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a container as ``GET .../status/current`` shows it."""
    return row(node, vmid, config) | {"ha": {"managed": 0}}


def resource(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a container's row in two lists: the cluster's resources, and the members of a pool."""
    facts = row(node, vmid, config)
    identity = {"id": f"lxc/{vmid}", "type": "lxc", "node": node.name, "template": facts.get("template", 0)}
    return identity | {"maxcpu": facts["cpus"], "memhost": facts["mem"]} | {k: facts[k] for k in _RESOURCE}
