"""Tasks: list, state, log, stop. Everybody sees their own; Sys.Audit on the node shows all."""

from __future__ import annotations

from typing import Any

from minipve.api import route
from minipve.config.formats import split_list
from minipve.node import Call, Reply
from minipve.tasks import parse_upid

_DEFAULT_LIMIT = 50


def _belongs(call: Call, fields: dict[str, Any]) -> bool:
    """A user sees the tasks of all its tokens; a token only its own."""
    full = fields["user"] + (f"!{fields['tokenid']}" if "tokenid" in fields else "")
    return call.permit.authid in (full, fields["user"])


def _visible(call: Call, privilege: str = "Sys.Audit") -> None:
    if not _belongs(call, parse_upid(call["upid"])):
        call.permit.need(f"/nodes/{call.node.name}", [privilege])


@route("GET", "/nodes/{node}/tasks/{upid}/status")
def status(call: Call) -> dict[str, Any]:
    """``running``, or ``stopped`` with the exit status."""
    _visible(call)
    return call.node.tasks.status(call["upid"])


@route("GET", "/nodes/{node}/tasks/{upid}/log")
def log(call: Call) -> Reply:
    """Lines of the log; 50 unless told, 0 means all."""
    _visible(call)
    lines, total = call.node.tasks.log(call["upid"], call.get("start", 0), call.get("limit", _DEFAULT_LIMIT))
    return Reply(lines, {"total": total})


@route("DELETE", "/nodes/{node}/tasks/{upid}")
def stop(call: Call) -> None:
    """Ask a running task to end."""
    _visible(call, "Sys.Modify")
    call.node.tasks.interrupt(call["upid"])


def _state(row: dict[str, Any]) -> str:
    status = row["status"]
    return {"OK": "ok", "unexpected status": "unknown"}.get(
        status, "warning" if status.startswith("WARNINGS") else "error"
    )


def _wanted(call: Call, row: dict[str, Any]) -> bool:
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
    """Finished tasks (``source=active|all`` for the others), newest first, those that the caller may see."""
    everything = call.permit.has(f"/nodes/{call.node.name}", ["Sys.Audit"])
    rows = [row for row in call.node.tasks.overview() if everything or _belongs(call, row)]
    rows = [row for row in rows if _wanted(call, row)]
    start, limit = call.get("start", 0), call.get("limit", _DEFAULT_LIMIT)
    return Reply(rows[start : start + limit], {"total": len(rows)} if rows else {})


@route("GET", "/cluster/tasks")
def recent(call: Call) -> list[dict[str, Any]]:
    """The latest tasks that the caller may see."""
    everything = call.permit.has("/", ["Sys.Audit"])
    nodes = [node for node in call.node.nodes.values() if node.is_up]
    rows = [row for node in nodes for row in node.tasks.overview() if everything or _belongs(call, row)]
    return sorted(rows, key=lambda row: row["starttime"], reverse=True)[:_DEFAULT_LIMIT]
