"""Power of a whole node: find the guests that run, end them at once, switch an additional node off and on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from minipve.base import process
from minipve.base.errors import UserError
from minipve.base.paths import Paths
from minipve.guests.lxc import limits
from minipve.guests.lxc import power as lxc_power
from minipve.guests.lxc import running as running_containers
from minipve.guests.qemu import running as running_machines
from minipve.network import links, namespace


def machines(paths: Paths) -> dict[int, int]:
    """Return VMID -> process id of the running machines."""
    return running_machines.find_all(paths)


def containers(paths: Paths) -> dict[int, int]:
    """Return VMID -> process id (of LXC's monitor) of the running containers."""
    return running_containers.find_all(paths)


def end_guests(paths: Paths) -> bool:
    """End all guests of a node at once. True if any ran."""
    vm_pids, container_pids = machines(paths), containers(paths)
    _end_containers(paths, container_pids)
    for pid in vm_pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    for pid in vm_pids.values():
        process.end(pid)
    return bool(vm_pids) or bool(container_pids)


def _end_containers(paths: Paths, pids: dict[int, int]) -> None:
    """End containers. Their NICs disappear with the instance's network."""
    with ThreadPoolExecutor(8) as many:
        list(many.map(lambda vmid: lxc_power.end(vmid, paths), pids.keys() | running_containers.vmids(paths)))
    for _ in range(20):  # a control group is busy for a moment after its last process
        limits.remove(paths)
        if not limits.exist(paths):
            return
        time.sleep(0.05)


def _additional_node(paths: Paths, name: str) -> Paths:
    if name not in paths.additional_nodes:
        names = ", ".join(paths.additional_nodes) or "none (start it with --nodes 2)"
        raise UserError(f"{name!r} is not an additional node; additional nodes: {names}")
    return paths.of_node(name)


def switch_off(paths: Paths, name: str) -> None:
    """Cut a node's power: its guests end at once, and it no longer answers."""
    node = _additional_node(paths, name)
    node.down.touch()
    _cable(paths, name, "down")
    end_guests(node)


def switch_on(paths: Paths, name: str) -> None:
    """Power a node on again, with its guests stopped."""
    node = _additional_node(paths, name)
    _cable(paths, name, "up")
    node.down.unlink(missing_ok=True)


def _cable(paths: Paths, name: str, state: str) -> None:
    network = namespace.find(paths)
    if network is None or process.recall(paths.endpoint_lock) is None:
        raise UserError(f"no endpoint runs in {paths.state}", "minipve serve --detach")
    process.run(network.argv(links.switch(name, state)))
