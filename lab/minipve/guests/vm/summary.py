"""Rows of the API's lists: a VM, a node, a storage."""

from __future__ import annotations

import math
from typing import Any

from minipve.base import host
from minipve.config import drives, values
from minipve.config.store import GuestConfig
from minipve.guests.qemu.running import MachineState
from minipve.guests.vm import machines
from minipve.node.node import Node
from minipve.storage import directory

_RESOURCE = (
    "vmid", "name", "status", "uptime", "cpu", "mem", "maxmem", "memhost", "disk", "maxdisk", "netin",
    "netout",
)  # fmt: skip


def vm(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a VM as ``GET /nodes/{node}/qemu`` shows it."""
    return _vm(vmid, config.options, machines.state(node, vmid))


def _vm(vmid: int, options: dict[str, str], state: MachineState) -> dict[str, Any]:
    cpus = min(math.prod(values.sockets_and_cores(options)), host.cpus())
    row: dict[str, Any] = {
        "vmid": vmid,
        "name": options.get("name", f"VM {vmid}"),
        "status": state.status,
        "cpus": cpus,
        "maxmem": values.memory_mib(options) * 2**20,
        "maxdisk": drives.boot_disk_bytes(options),
        "disk": 0,
        "cpu": state.cpu / cpus,
        "mem": state.mem_bytes,
        "memhost": state.mem_bytes,
        "uptime": state.uptime_s,
        "netin": sum(nic["netin"] for nic in state.nics.values()),
        "netout": sum(nic["netout"] for nic in state.nics.values()),
    }
    if state.pid:
        row |= {"pid": state.pid} | dict.fromkeys(host.PRESSURES, 0)  # QEMU has no cgroup that measures them
    if options.get("template") == "1":
        row["template"] = 1
    if any(key.startswith("serial") for key in options):
        row["serial"] = 1
    return row | {key: options[key] for key in ("tags", "lock") if key in options}


def vm_status(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a VM as ``GET .../status/current`` shows it."""
    state = machines.state(node, vmid)
    row = _vm(vmid, config.options, state) | {"qmpstatus": state.qmpstatus, "ha": {"managed": 0}}
    if "vga" in config.options:
        row["clipboard"] = None
    if values.agent_enabled(config.options):
        row["agent"] = 1
    if state.pid:
        row |= {"nics": state.nics, "running-machine": "pc", "running-qemu": machines.qemu_version()}
    return row


def vm_resource(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a VM as the lists of the cluster's resources and of a pool's members show it."""
    row = vm(node, vmid, config)
    resource = {"id": f"qemu/{vmid}", "type": "qemu", "node": node.name, "template": row.get("template", 0)}
    resource |= {"maxcpu": row["cpus"], "diskread": 0, "diskwrite": 0}
    return resource | {key: row[key] for key in _RESOURCE}


def storage_resource(node: Node) -> dict[str, Any]:
    """Return the storage as the lists of the cluster's resources and of a pool's members show it."""
    usage = node.storage.usage() if node.is_up else {"used": 0, "total": 0}
    return {
        "id": f"storage/{node.name}/{drives.STORAGE}",
        "type": "storage",
        "storage": drives.STORAGE,
        "node": node.name,
        "plugintype": "dir",
        "status": "available" if node.is_up else "unknown",
        "content": directory.CONTENT,
        "shared": 0,
        "disk": usage["used"],
        "maxdisk": usage["total"],
    }


def node_row(node: Node) -> dict[str, Any]:
    """Return the node as ``GET /nodes`` shows it; one that is off has no load."""
    if not node.is_up:
        row = {"id": f"node/{node.name}", "node": node.name, "type": "node"}
        return row | {"status": "offline", "level": ""}
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
    """Return the storage as ``GET /nodes/{node}/storage`` shows it."""
    usage = node.storage.usage()
    return {
        "storage": drives.STORAGE,
        "type": "dir",
        "content": directory.CONTENT,
        "active": 1,
        "enabled": 1,
        "shared": 0,
        "used_fraction": usage["used"] / usage["total"],
        **usage,
    }
