"""Power of VMs: start, stop, shutdown, reboot, reset, suspend, resume as tasks, and the current state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minipve.api.routing import VM, route
from minipve.base.errors import ApiError
from minipve.guests.vm import lifecycle, machines, summary
from minipve.node.call import Call
from minipve.node.tasks import Task

_ROOT_ONLY = (
    "skiplock", "stateuri", "migratedfrom", "migration_type", "migration_network", "targetstorage",
    "force-cpu", "keepActive", "nets-host-mtu", "with-conntrack-state",
)  # fmt: skip
_SHUTDOWN_S = 60
Action = Callable[[Call, Task], None]


@route("GET", f"{VM}/status/current")
def current(call: Call) -> dict[str, Any]:
    """Return the current state, with byte counters of each NIC."""
    return summary.vm_status(call.node, call.vmid, call.node.vms.load(call.vmid))


def _check(call: Call, must_run: bool) -> None:
    for name in _ROOT_ONLY:
        call.permit.need_root_option(name, call.params)
    call.node.vms.load_or_empty(call.vmid)
    if must_run and not machines.running_pid(call.node, call.vmid):
        raise ApiError(f"VM {call.vmid} not running")


def _locked(call: Call, action: Callable[[], None]) -> None:
    with call.node.vms.locked(call.vmid):
        if not call.get("skiplock"):
            call.node.vms.load_or_empty(call.vmid).check_lock()
        action()


def _start(call: Call, task: Task) -> None:
    lifecycle.start(call.node, task, call.vmid, bool(call.get("skiplock")))


def start_in_task(call: Call) -> str:
    """Start the VM in a task of its own (``qmstart``)."""
    return call.start("qmstart", call.vmid, lambda task: _start(call, task))


def _stop(call: Call, task: Task) -> None:
    if call.get("overrule-shutdown"):
        for upid in call.node.tasks.running("qmshutdown", str(call.vmid)):
            call.node.tasks.interrupt(upid)
    _locked(call, lambda: machines.stop(call.node, call.vmid))


def _shutdown(call: Call, task: Task) -> None:
    timeout_s, force = call.get("timeout", _SHUTDOWN_S), bool(call.get("forceStop"))
    _locked(call, lambda: machines.shutdown(call.node, call.vmid, timeout_s, force, task))


def _reboot(call: Call, task: Task) -> None:
    timeout_s = call.get("timeout", _SHUTDOWN_S)
    _locked(call, lambda: machines.shutdown(call.node, call.vmid, timeout_s, False, task))
    lifecycle.start(call.node, task, call.vmid)


def _reset(call: Call, task: Task) -> None:
    _locked(call, lambda: machines.reset(call.node, call.vmid))


def _suspend(call: Call, task: Task) -> None:
    _locked(call, lambda: machines.suspend(call.node, call.vmid))


def _resume(call: Call, task: Task) -> None:
    _locked(call, lambda: machines.resume(call.node, call.vmid))


_ACTIONS: dict[str, tuple[Action, bool]] = {  # name -> (function, whether the VM must run)
    "start": (_start, False),
    "stop": (_stop, False),
    "shutdown": (_shutdown, False),
    "reboot": (_reboot, True),
    "reset": (_reset, True),
    "suspend": (_suspend, True),
    "resume": (_resume, True),
}


def _declare(name: str, action: Action, must_run: bool) -> None:
    @route("POST", f"{VM}/status/{name}")
    def handler(call: Call) -> str:
        _check(call, must_run)
        return call.start(f"qm{name}", call.vmid, lambda task: action(call, task))


for _name, (_action, _must_run) in _ACTIONS.items():
    _declare(_name, _action, _must_run)
