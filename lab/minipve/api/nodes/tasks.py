"""Tasks: list, state, log, stop; the cluster's log of them.

Callers see their own tasks, and all with Sys.Audit on the node (Sys.Syslog in the cluster's log).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minipve.access import permissions
from minipve.api.routing import route
from minipve.config.rules.formats import split_list
from minipve.node.call import Call, Reply
from minipve.node.tasks import parse_upid

_DEFAULT_LIMIT = 50
_INFO, _ERROR = 6, 3  # levels of syslog


def _belongs(call: Call, fields: dict[str, Any]) -> bool:
    """Return whether a task is the caller's. A user owns the tasks of its tokens, a token only its own."""
    full = fields["user"] + (f"!{fields['tokenid']}" if "tokenid" in fields else "")
    return call.permit.authid in (full, fields["user"])


def _visible(call: Call) -> None:
    if not _belongs(call, parse_upid(call["upid"])):
        call.permit.require(f"/nodes/{call.node.name}", ["Sys.Audit"])


@route("GET", "/nodes/{node}/tasks/{upid}/status")
def status(call: Call) -> dict[str, Any]:
    """Return ``running``, or ``stopped`` with the exit status."""
    _visible(call)
    return call.node.tasks.status(call["upid"])


@route("GET", "/nodes/{node}/tasks/{upid}/log")
def log(call: Call) -> Reply:
    """Return lines of the log: 50 by default, all for the limit 0."""
    _visible(call)
    lines, total = call.node.tasks.log(call["upid"], call.get("start", 0), call.get("limit", _DEFAULT_LIMIT))
    return Reply(lines, {"total": total})


@route("DELETE", "/nodes/{node}/tasks/{upid}")
def stop(call: Call) -> None:
    """Ask a running task to stop."""
    if not _belongs(call, parse_upid(call["upid"])):
        call.permit.need_right(permissions.OTHERS_TASK, node=call.node.name)
    call.node.tasks.interrupt(call["upid"])


def _state(row: dict[str, Any]) -> str:
    status = row["status"]
    return {"OK": "ok", "unexpected status": "unknown"}.get(
        status, "warning" if status.startswith("WARNINGS") else "error"
    )


def _matches(call: Call, row: dict[str, Any]) -> bool:
    source = call.get("source", "archive")
    running = row["status"] == "RUNNING"
    states = split_list(call.get("statusfilter", ""))
    return (
        (source == "all" or running == (source == "active"))
        and call.get("typefilter") in (None, row["type"])
        and ("vmid" not in call.params or row["id"] == str(call["vmid"]))
        and call.get("userfilter", "") in row["user"]
        and call.get("since", 0) <= row["starttime"] <= call.get("until", 2**62)
        and not (call.get("errors") and _state(row) == "ok")
        and (not states or _state(row) in states)
    )


@route("GET", "/nodes/{node}/tasks")
def index(call: Call) -> Reply:
    """Return finished tasks (with ``source`` active or all ones), newest first, that the caller may see."""
    sees_all = call.permit.has(f"/nodes/{call.node.name}", ["Sys.Audit"])
    rows = [row for row in call.node.tasks.overview() if sees_all or _belongs(call, row)]
    rows = [row for row in rows if _matches(call, row)]
    start, limit = call.get("start", 0), call.get("limit", _DEFAULT_LIMIT)
    return Reply(rows[start : start + limit], {"total": len(rows)} if rows else {})


@route("GET", "/cluster/tasks")
def recent(call: Call) -> list[dict[str, Any]]:
    """Return the latest tasks that the caller may see."""
    sees_all = call.permit.has("/", ["Sys.Audit"])
    nodes = [node for node in call.node.nodes.values() if node.is_up]
    rows = [row for node in nodes for row in node.tasks.overview() if sees_all or _belongs(call, row)]
    return sorted(rows, key=lambda row: row["starttime"], reverse=True)[:_DEFAULT_LIMIT]


@route("GET", "/cluster/log")
def cluster_log(call: Call) -> list[dict[str, Any]]:
    """Return when tasks started and ended, newest first."""
    sees_all = call.permit.has("/", ["Sys.Syslog"])
    nodes = [node for node in call.node.nodes.values() if node.is_up]
    tasks = [row for node in nodes for row in node.tasks.overview()[::-1] if sees_all or _belongs(call, row)]
    entries = sorted(
        (entry for task in tasks for entry in _log_entries(task)), key=lambda entry: entry["time"]
    )
    numbered = [{"uid": uid, "id": f"{uid}:{entry['node']}"} | entry for uid, entry in enumerate(entries, 1)]
    return numbered[::-1][: call.get("max")]


def _log_entries(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the entries of one task: its start and, if it has ended, how."""
    entry = {"node": task["node"], "user": task["user"], "pid": task["pid"], "tag": "pvedaemon"}
    yield entry | {"time": task["starttime"], "pri": _INFO, "msg": f"starting task {task['upid']}"}
    if "endtime" in task:
        pri = _INFO if _state(task) == "ok" else _ERROR
        text = f"end task {task['upid']} {task['status']}"
        yield entry | {"time": task["endtime"], "pri": pri, "msg": text}
