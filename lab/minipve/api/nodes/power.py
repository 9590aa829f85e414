"""Power of a node, and of all its guests: startall, stopall."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from minipve.access import permissions
from minipve.api.routing import route
from minipve.base.errors import ApiError
from minipve.config.rules.formats import split_list
from minipve.config.rules.schema import LXC, Kind
from minipve.config.store import GuestConfig
from minipve.guests import power
from minipve.guests.container import lifecycle as containers
from minipve.guests.lxc import running
from minipve.guests.vm import lifecycle, machines
from minipve.node.call import Call
from minipve.node.node import Node
from minipve.node.tasks import Task

_LAST = 2**62  # guests without an order start last
_STOP_TIMEOUT_S = 180
Guest = tuple[int, GuestConfig]


@route("POST", "/nodes/{node}/status")
def command(call: Call) -> None:
    """Switch an additional node off, or off and on. Its guests end at once."""
    node = call.node
    if node is node.first:
        raise ApiError("not supported here for the node that answers the API")
    power.switch_off(node.first.paths, node.name)
    if call["command"] == "reboot":
        power.switch_on(node.first.paths, node.name)


def _order(config: GuestConfig, key: str) -> int | None:
    """Return a number of the option ``startup``: ``order=1,up=30,down=60``, or ``1`` for the order."""
    text = re.sub(r"^(\d+)", r"order=\1", config.options.get("startup", ""))
    match = re.search(rf"\b{key}=(\d+)", text)
    return int(match[1]) if match else None


def _position(guest: Guest) -> tuple[int, int]:
    vmid, config = guest
    order = _order(config, "order")
    return _LAST if order is None else order, vmid


def _is_running(node: Node, vmid: int, kind: Kind) -> bool:
    if kind is LXC:
        return running.init_pid(vmid, node.paths) is not None
    return machines.running_pid(node, vmid) is not None


def _guests(call: Call) -> Iterator[Guest]:
    """Yield the guests that the call selects, in the order in which they start."""
    selected = [int(vmid) for vmid in split_list(call.get("vms", ""))]
    for vmid, config in sorted(call.node.guests(), key=_position):
        if not config.is_template and (not selected or vmid in selected):
            yield vmid, config


def _start(node: Node, vmid: int, start: Callable[[Node, Task, int], None], task: Task) -> None:
    start(node, task, vmid)


def _check_permission(call: Call) -> None:
    """Raise 403 unless the caller may start and stop the selected guests."""
    right, selected = permissions.EACH_GUEST, split_list(call.get("vms", ""))
    if not selected:
        call.permit.require("/", right.privileges)
    elif not call.permit.has("/", right.privileges):
        for vmid in selected:
            call.permit.need_right(right, vmid=vmid)


def _run(call: Call, task: Task, kind: Kind, name: str, vmid: int, work: Callable[[Task], None]) -> None:
    """Run a task for a guest, wait for it, and log its failure."""
    upid = call.node.tasks.start(f"{kind.tasks}{name}", str(vmid), call.permit.authid, work)
    exit_status = call.node.tasks.wait_for(upid, task)
    if exit_status != "OK" and not exit_status.startswith("WARNINGS"):
        verb = {"start": "Starting", "shutdown": "Stopping"}[name]
        task.log(f"{verb} {kind.word} {vmid} failed: {exit_status}")


@route("POST", "/nodes/{node}/startall")
def start_all(call: Call) -> str:
    """Start all stopped guests with ``onboot``, or with ``force`` all (task ``startall``)."""
    _check_permission(call)

    def work(task: Task) -> None:
        for vmid, config in _guests(call):
            boots = call.get("force") or config.options.get("onboot") == "1"
            if not boots or _is_running(call.node, vmid, config.kind):
                continue
            task.log(f"Starting {config.kind.word} {vmid}")
            start = containers.start if config.kind is LXC else lifecycle.start
            _run(call, task, config.kind, "start", vmid, partial(_start, call.node, vmid, start))
            task.wait(_order(config, "up") or 0)

    return call.start("startall", "", work)


@route("POST", "/nodes/{node}/stopall")
def stop_all(call: Call) -> str:
    """Shut all running guests down (task ``stopall``). With ``force-stop`` a timeout ends them."""
    _check_permission(call)
    force = bool(call.get("force-stop", 1))

    def work(task: Task) -> None:
        for vmid, config in reversed(list(_guests(call))):
            if not _is_running(call.node, vmid, config.kind):
                continue
            timeout_s = _order(config, "down") or call.get("timeout", _STOP_TIMEOUT_S)
            task.log(f"Stopping {config.kind.word} {vmid} (timeout = {timeout_s} seconds)")

            def stop(t: Task, kind: Kind = config.kind, v: int = vmid, s: int = timeout_s) -> None:
                if kind is LXC:
                    containers.shutdown(call.node, t, v, s, force)
                else:
                    machines.shutdown(call.node, v, s, force, t)

            _run(call, task, config.kind, "shutdown", vmid, stop)

    return call.start("stopall", "", work)
