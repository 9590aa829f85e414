"""Power of containers: start, stop, shutdown and reboot as tasks, and the current state."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import CT, route
from minipve.base.errors import ApiError
from minipve.guests.container import lifecycle, summary
from minipve.guests.lxc import running
from minipve.node.call import Call
from minipve.node.tasks import Task

_SHUTDOWN_S = 60


@route("GET", f"{CT}/status/current")
def current(call: Call) -> dict[str, Any]:
    return summary.status(call.node, call.vmid, call.node.containers.load(call.vmid))


def _runs(call: Call) -> bool:
    return running.init_pid(call.vmid, call.node.paths) is not None


def _check_running(call: Call, word: str = "CT") -> None:
    if not _runs(call):
        raise ApiError(f"{word} {call.vmid} not running")


@route("POST", f"{CT}/status/start")
def start(call: Call) -> str:
    """Start the container (task ``vzstart``)."""
    call.permit.need_root_option("skiplock", call.params)
    if _runs(call):
        raise ApiError(f"CT {call.vmid} already running")
    return start_in_task(call)


def start_in_task(call: Call) -> str:
    """Start the container in a task of its own (``vzstart``)."""
    skiplock = bool(call.get("skiplock"))
    return call.start(
        "vzstart", call.vmid, lambda task: lifecycle.start(call.node, task, call.vmid, skiplock)
    )


@route("POST", f"{CT}/status/stop")
def stop(call: Call) -> str:
    """End the container immediately (task ``vzstop``)."""
    call.permit.need_root_option("skiplock", call.params)
    _check_running(call)

    def work(task: Task) -> None:
        if call.get("overrule-shutdown"):
            for upid in call.node.tasks.running("vzshutdown", str(call.vmid)):
                call.node.tasks.interrupt(upid)
        lifecycle.stop(call.node, call.vmid, bool(call.get("skiplock")))

    return call.start("vzstop", call.vmid, work)


@route("POST", f"{CT}/status/shutdown")
def shutdown(call: Call) -> str:
    """Shut the container down (task ``vzshutdown``)."""
    _check_running(call)
    timeout_s, force = call.get("timeout", _SHUTDOWN_S), bool(call.get("forceStop"))
    return call.start(
        "vzshutdown", call.vmid, lambda task: lifecycle.shutdown(call.node, task, call.vmid, timeout_s, force)
    )


@route("POST", f"{CT}/status/reboot")
def reboot(call: Call) -> str:
    """Shut the container down and start it again (task ``vzreboot``)."""
    _check_running(call, "VM")  # PVE's word here

    def work(task: Task) -> None:
        lifecycle.shutdown(call.node, task, call.vmid, call.get("timeout", _SHUTDOWN_S), False)
        lifecycle.start(call.node, task, call.vmid)

    return call.start("vzreboot", call.vmid, work)


@route("POST", f"{CT}/status/suspend")
def suspend(call: Call) -> str:
    """Start a task ``vzsuspend`` that fails, since containers cannot be suspended to disk here."""
    _check_running(call)
    return call.start("vzsuspend", call.vmid, _refuse("suspend"))


@route("POST", f"{CT}/status/resume")
def resume(call: Call) -> str:
    """Start a task ``vzresume`` that fails, since no container is suspended."""
    return call.start("vzresume", call.vmid, _refuse("resume"))


def _refuse(verb: str) -> Any:
    def work(task: Task) -> None:
        raise ApiError(f"{verb} of containers is not supported here")

    return work
