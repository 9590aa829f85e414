"""Groups of users: list, create, change, delete."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import ApiError, error_prefix
from minipve.node.call import Call

_SEE = ("User.Modify", "Sys.Audit", "Group.Allocate")


def _group(data: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in data["groups"]:
        raise ApiError(f"group '{name}' does not exist")
    group: dict[str, Any] = data["groups"][name]
    return group


def _comment(group: dict[str, Any]) -> dict[str, str]:
    return {"comment": group["comment"]} if "comment" in group else {}


@route("GET", "/access/groups")
def index(call: Call) -> list[dict[str, Any]]:
    """Return the groups that the caller may see, with their members as a list in one text."""
    return [
        {"groupid": name, "users": ",".join(sorted(group["users"]))} | _comment(group)
        for name, group in sorted(call.node.access.data["groups"].items())
        if call.permit.has(f"/access/groups/{name}", _SEE, any_of=True)
    ]


@route("POST", "/access/groups")
def create(call: Call) -> None:
    name = call["groupid"]
    with error_prefix("create group failed: "), call.node.access.change() as data:
        if name in data["groups"]:
            raise ApiError(f"group '{name}' already exists")
        comment = {"comment": call["comment"]} if call.get("comment") else {}
        data["groups"][name] = {"users": []} | comment


@route("GET", "/access/groups/{groupid}")
def read(call: Call) -> dict[str, Any]:
    """Return a group's members and its comment."""
    group = _group(call.node.access.data, call["groupid"])
    return {"members": sorted(group["users"])} | _comment(group)


@route("PUT", "/access/groups/{groupid}")
def update(call: Call) -> None:
    """Change the comment. Users join a group by their own options."""
    with error_prefix("update group failed: "), call.node.access.change() as data:
        group = _group(data, call["groupid"])
        if "comment" in call.params:
            group["comment"] = call["comment"]


@route("DELETE", "/access/groups/{groupid}")
def delete(call: Call) -> None:
    """Remove a group and its entries in the access-control list. Its users stay."""
    with error_prefix("delete group failed: "), call.node.access.change() as data:
        _group(data, call["groupid"])
        del data["groups"][call["groupid"]]
        data["acl"] = [a for a in data["acl"] if (a["type"], a["ugid"]) != ("group", call["groupid"])]
