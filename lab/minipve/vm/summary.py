"""The rows that lists show: one of a VM, one of the node, one of the storage."""

from __future__ import annotations

import math
from typing import Any

from lab.minipve import host
from lab.minipve.config import drives, values
from lab.minipve.config.formats import split_list
from lab.minipve.config.store import VmConfig
from lab.minipve.image import storage
from lab.minipve.node import Node
from lab.minipve.vm import machines


def vm(node: Node, vmid: int, config: VmConfig) -> dict[str, Any]:
    """A VM as ``GET /nodes/{node}/qemu`` shows it."""
    options = config.options
    state = machines.state(node, vmid)
    row: dict[str, Any] = {
        "vmid": vmid,
        "name": options.get("name", f"VM {vmid}"),
        "status": state.status,
        "cpus": math.prod(values.sockets_and_cores(options)),
        "maxmem": values.memory_mib(options) * 2**20,
        "maxdisk": drives.boot_disk_bytes(options),
        "disk": 0,
        "cpu": state.cpu,
        "mem": state.mem_bytes,
        "memhost": state.mem_bytes,
        "uptime": state.uptime_s,
        "netin": sum(nic["netin"] for nic in state.nics.values()),
        "netout": sum(nic["netout"] for nic in state.nics.values()),
        "diskread": 0,
        "diskwrite": 0,
    }
    if state.pid:
        row["pid"] = state.pid
    if config.is_template:
        row["template"] = 1
    if any(key.startswith("serial") for key in options):
        row["serial"] = 1
    return row | {key: options[key] for key in ("tags", "lock") if key in options}


def vm_status(node: Node, vmid: int, config: VmConfig) -> dict[str, Any]:
    """A VM as ``GET .../status/current`` shows it."""
    row, state = vm(node, vmid, config), machines.state(node, vmid)
    row |= {"qmpstatus": state.qmpstatus, "ha": {"managed": 0}, "clipboard": None}
    if values.agent_enabled(config.options):
        row["agent"] = 1
    if state.pid:
        row |= {"nics": state.nics, "running-machine": "pc", "running-qemu": machines.qemu_version()}
    return row


def node_row(node: Node) -> dict[str, Any]:
    """The node as ``GET /nodes`` shows it."""
    memory, root = host.memory(), host.root_filesystem()
    return {
        "id": f"node/{node.name}",
        "node": node.name,
        "type": "node",
        "status": "online",
        "level": "",
        "cpu": host.cpu_fraction(),
        "maxcpu": host.cpus(),
        "mem": memory["used"],
        "maxmem": memory["total"],
        "disk": root["used"],
        "maxdisk": root["total"],
        "uptime": host.uptime_s(),
    }


def storage_row(node: Node) -> dict[str, Any]:
    """The storage as ``GET /nodes/{node}/storage`` shows it."""
    usage = node.storage.usage()
    return {
        "storage": storage.NAME,
        "type": "dir",
        "content": storage.CONTENT,
        "active": 1,
        "enabled": 1,
        "shared": 0,
        "used_fraction": usage["used"] / usage["total"],
        **usage,
    }


def tags(options: dict[str, str]) -> list[str]:
    """The tags of a VM."""
    return split_list(options.get("tags", ""))
