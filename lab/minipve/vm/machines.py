"""The running side of the VMs: the endpoint's only door to QEMU processes.

Callers hold the VM's file lock where the state changes.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import Any

from minipve import process
from minipve.node import Node
from minipve.process import MachineError
from minipve.qemu import accel, hotplug, power, qmp, running
from minipve.qemu import agent as guest_agent
from minipve.qemu.running import MachineState
from minipve.tasks import Task


@cache
def qemu_version() -> str:
    """QEMU's version, e.g. ``7.2.22``."""
    said = process.run(["qemu-system-x86_64", "--version"])
    found = re.search(r"version (\d+(?:\.\d+)+)", said)
    return found[1] if found else "unknown"


def state(node: Node, vmid: int) -> MachineState:
    """What the VM's process does right now."""
    return running.state(vmid, node.paths)


def running_pid(node: Node, vmid: int) -> int | None:
    """The VM's QEMU process, verified to be that of this VM."""
    return running.running_pid(vmid, node.paths)


def start(node: Node, vmid: int, options: dict[str, str], task: Task) -> None:
    """Start QEMU with the given configuration."""
    power.start(vmid, options, node.paths, task.log)


def stop(node: Node, vmid: int) -> None:
    """End QEMU; nothing happens when it does not run."""
    power.stop(vmid, node.paths)


def shutdown(node: Node, vmid: int, timeout_s: float, force: bool, task: Task) -> None:
    """Ask the guest to power off and wait; with ``force`` stop it when it does not in time."""
    if not running_pid(node, vmid):
        return
    power.ask_to_power_off(vmid, node.paths)
    deadline = time.monotonic() + timeout_s
    while running_pid(node, vmid):
        if time.monotonic() > deadline:
            if force:
                break
            raise MachineError("VM quit/powerdown failed - got timeout")
        task.wait(0.05)
    stop(node, vmid)


def reset(node: Node, vmid: int) -> None:
    """Press reset."""
    power.reset(vmid, node.paths)


def suspend(node: Node, vmid: int) -> None:
    """Halt the virtual CPUs."""
    power.suspend(vmid, node.paths)


def resume(node: Node, vmid: int) -> None:
    """Let the virtual CPUs go on."""
    power.resume(vmid, node.paths)


def change_nic(node: Node, vmid: int, index: int, old: str | None, new: str | None) -> None:
    """Change a NIC of a running VM; None stands for no NIC before or after."""
    hotplug.change_nic(vmid, index, old, new, node.paths)


def resize_block(node: Node, vmid: int, slot: str, size_bytes: int) -> None:
    """Tell a running QEMU that a disk has grown."""
    qmp.Qmp(vmid, node.paths).execute("block_resize", {"device": f"drive-{slot}", "size": size_bytes})


def snapshot(node: Node, vmid: int, name: str, slots: list[str]) -> None:
    """Have a running QEMU snapshot these drives, all at the same moment."""
    kind = "blockdev-snapshot-internal-sync"
    actions = [{"type": kind, "data": {"device": f"drive-{slot}", "name": name}} for slot in slots]
    if actions:
        qmp.Qmp(vmid, node.paths).execute("transaction", {"actions": actions}, timeout_s=60)


def delete_snapshot(node: Node, vmid: int, name: str, slot: str) -> None:
    """Have a running QEMU delete a snapshot of one of its drives."""
    command, given = "blockdev-snapshot-delete-internal-sync", {"device": f"drive-{slot}", "name": name}
    qmp.Qmp(vmid, node.paths).execute(command, given, timeout_s=60)


def agent(node: Node, vmid: int, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
    """Ask the guest agent; it is pinged first."""
    return guest_agent.execute(vmid, node.paths, command, arguments or None, timeout_s)


def monitor(node: Node, vmid: int, command: str) -> str:
    """What QEMU's human monitor says."""
    if not running_pid(node, vmid):
        raise MachineError(f"VM {vmid} not running")
    return str(qmp.Qmp(vmid, node.paths).execute("human-monitor-command", {"command-line": command}))


def accelerator(node: Node) -> accel.Accel:
    """What the guests run on, and why."""
    return accel.probe(node.paths)


def forget(node: Node, vmid: int) -> None:
    """Remove what a destroyed VM leaves outside of the storage."""
    (node.paths.seeds / f"vm-{vmid}-cloudinit.iso").unlink(missing_ok=True)


def tidy(node: Node, vmid: int) -> None:
    """Say so, and remove taps and sockets, when the machine has ended by itself."""
    running.reap(vmid, node.paths)
