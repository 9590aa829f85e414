"""Control the QEMU process of a VM. The rest of the endpoint reaches QEMU only through this module.

Callers hold the VM's file lock when they change its state.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import Any

from minipve.base import process
from minipve.base.errors import MachineError
from minipve.guests.qemu import channel, power, running
from minipve.guests.qemu import channel as guest_agent
from minipve.guests.qemu.running import MachineState
from minipve.node.node import Node
from minipve.node.tasks import Task


@cache
def qemu_version() -> str:
    """Return QEMU's version, for example ``7.2.22``."""
    output = process.run(["qemu-system-x86_64", "--version"])
    match = re.search(r"version (\d+(?:\.\d+)+)", output)
    return match[1] if match else "unknown"


def state(node: Node, vmid: int) -> MachineState:
    return running.state(vmid, node.paths)


def running_pid(node: Node, vmid: int) -> int | None:
    """Return the VM's QEMU process, or None if it does not run."""
    return running.running_pid(vmid, node.paths)


def start(node: Node, vmid: int, options: dict[str, str], task: Task) -> None:
    power.start(vmid, options, node.paths, task.log)


def stop(node: Node, vmid: int) -> None:
    """End QEMU. No effect if it does not run."""
    power.stop(vmid, node.paths)


def shutdown(node: Node, vmid: int, timeout_s: float, force: bool, task: Task) -> None:
    """Ask the guest to power off and wait.

    Raises:
        MachineError: it is still running after ``timeout_s``; with ``force`` it is stopped instead.
    """
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
    power.reset(vmid, node.paths)


def suspend(node: Node, vmid: int) -> None:
    power.suspend(vmid, node.paths)


def resume(node: Node, vmid: int) -> None:
    power.resume(vmid, node.paths)


def change_nic(node: Node, vmid: int, index: int, old: str | None, new: str | None) -> None:
    """Change a NIC of a running VM. None as ``old`` adds one, None as ``new`` removes it."""
    power.change_nic(vmid, index, old, new, node.paths)


def resize_block(node: Node, vmid: int, slot: str, size_bytes: int) -> None:
    """Grow a disk of a running VM."""
    channel.Qmp(vmid, node.paths).execute("block_resize", {"device": f"drive-{slot}", "size": size_bytes})


def snapshot(node: Node, vmid: int, name: str, slots: list[str]) -> None:
    """Take a snapshot of these drives of a running VM, all at the same moment."""
    kind = "blockdev-snapshot-internal-sync"
    actions = [{"type": kind, "data": {"device": f"drive-{slot}", "name": name}} for slot in slots]
    if actions:
        channel.Qmp(vmid, node.paths).execute("transaction", {"actions": actions}, timeout_s=60)


def delete_snapshot(node: Node, vmid: int, name: str, slot: str) -> None:
    """Delete a snapshot of one drive of a running VM."""
    command, arguments = "blockdev-snapshot-delete-internal-sync", {"device": f"drive-{slot}", "name": name}
    channel.Qmp(vmid, node.paths).execute(command, arguments, timeout_s=60)


def agent(node: Node, vmid: int, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
    """Run a command of the guest agent and return its value."""
    return guest_agent.execute(vmid, node.paths, command, arguments or None, timeout_s)


def monitor(node: Node, vmid: int, command: str) -> str:
    """Run a command of QEMU's human monitor and return its output."""
    if not running_pid(node, vmid):
        raise MachineError(f"VM {vmid} not running")
    return str(channel.Qmp(vmid, node.paths).execute("human-monitor-command", {"command-line": command}))


def remove_seed(node: Node, vmid: int) -> None:
    """Remove a destroyed VM's cloud-init seed, which is not in the storage."""
    (node.paths.seeds / f"vm-{vmid}-cloudinit.iso").unlink(missing_ok=True)


def reap(node: Node, vmid: int) -> None:
    """If the VM ended by itself, log it and remove its taps and sockets."""
    running.reap(vmid, node.paths)
