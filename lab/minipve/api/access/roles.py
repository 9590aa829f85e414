"""Roles: built-in ones, and those of users."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import ApiError, error_prefix, parameter_error
from minipve.config.rules.formats import split_list
from minipve.config.rules.privileges import BUILTIN_ROLES
from minipve.node.call import Call


@route("GET", "/access/roles")
def roles(call: Call) -> list[dict[str, Any]]:
    """Return all roles with their privileges. Built-in ones are ``special``."""
    return [
        {"roleid": name, "privs": ",".join(sorted(privs)), "special": int(name in BUILTIN_ROLES)}
        for name, privs in sorted(call.node.access.roles().items())
    ]


@route("GET", "/access/roles/{roleid}")
def role(call: Call) -> dict[str, int]:
    """Return the privileges of a role, each with the value 1."""
    privileges_of = call.node.access.roles()
    if call["roleid"] not in privileges_of:
        raise ApiError(f"role '{call['roleid']}' does not exist")
    return dict.fromkeys(sorted(privileges_of[call["roleid"]]), 1)


@route("POST", "/access/roles")
def create_role(call: Call) -> None:
    name = call["roleid"]
    if name.upper().startswith("PVE"):
        reserved = "cannot use role ID starting with the (case-insensitive) 'PVE' namespace"
        raise parameter_error(roleid=reserved)
    with error_prefix("create role failed: "), call.node.access.change() as data:
        if name in call.node.access.roles():
            raise ApiError(f"role '{name}' already exists")
        data["roles"][name] = sorted(set(split_list(call.get("privs", ""))))


@route("PUT", "/access/roles/{roleid}")
def update_role(call: Call) -> None:
    """Replace a role's privileges, or with ``append`` add to them."""
    name, privs = call["roleid"], set(split_list(call.get("privs", "")))
    if name in BUILTIN_ROLES:
        raise ApiError(f"auto-generated role '{name}' cannot be modified")
    with error_prefix("update role failed: "), call.node.access.change() as data:
        if name not in data["roles"]:
            raise ApiError(f"role '{name}' does not exist")
        data["roles"][name] = sorted(privs | set(data["roles"][name] if call.get("append") else ()))


@route("DELETE", "/access/roles/{roleid}")
def delete_role(call: Call) -> None:
    """Remove a role and its entries in the access-control list."""
    name = call["roleid"]
    if name in BUILTIN_ROLES:
        raise ApiError(f"auto-generated role '{name}' cannot be deleted")
    with error_prefix("delete role failed: "), call.node.access.change() as data:
        if data["roles"].pop(name, None) is None:
            raise ApiError(f"role '{name}' does not exist")
        data["acl"] = [a for a in data["acl"] if a["roleid"] != name]
