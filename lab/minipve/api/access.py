"""Login, permissions, access-control list, roles, users."""

from __future__ import annotations

import re
import time
from typing import Any

from minipve.access.accounts import ROOT, acl_path, grant, owner, revoke
from minipve.access.privileges import BUILTIN_ROLES
from minipve.access.tickets import hash_secret
from minipve.api import route
from minipve.config.formats import split_list
from minipve.errors import ApiError, denied, error_prefix, parameter_error
from minipve.node import Call

_REALMS: list[dict[str, Any]] = [
    {"realm": "pam", "type": "pam", "comment": "Linux PAM standard authentication"},
    {"realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server", "default": 1},
]
_CAP = {  # area of the web interface -> pattern of the privileges that matter there
    "vms": r"VM\.|Permissions\.",
    "access": r"Realm\.|User\.|Group\.|Permissions\.",
    "storage": r"Datastore\.|Permissions\.",
    "nodes": r"Sys\.|Permissions\.",
    "sdn": r"SDN\.|Permissions\.",
    "mapping": r"Mapping\.|Permissions\.",
    "dc": r"Sys\.|SDN\.|Realm\.",
}
_USER_FIELDS = ("enable", "expire", "comment", "email", "firstname", "lastname")


@route("GET", "/access/domains")
def domains(call: Call) -> list[dict[str, Any]]:
    return _REALMS


@route("GET", "/access/ticket")
def ticket_form(call: Call) -> None:
    """Return nothing, as PVE does for its web form."""


@route("POST", "/access/ticket")
def login(call: Call) -> dict[str, Any]:
    """Issue a ticket for a password, or for a valid ticket in its place."""
    realm = call.get("realm")
    userid = call["username"] if "@" in call["username"] or not realm else f"{call['username']}@{realm}"
    if not call.node.tickets.login(userid, call["password"]):
        raise ApiError("authentication failure", 401)
    ticket, csrf = call.node.tickets.issue(userid, time.time())
    return {
        "username": userid,
        "ticket": ticket,
        "CSRFPreventionToken": csrf,
        "cap": _capabilities(call, userid),
    }


def _capabilities(call: Call, userid: str) -> dict[str, dict[str, int]]:
    cap: dict[str, dict[str, int]] = {area: {} for area in _CAP}
    for path, privs in call.node.access.overview(userid).items():
        top = path.split("/")[1] or "dc"
        areas = ("vms", "storage") if top == "pool" else (top,) if top in _CAP else ()
        for area in areas:
            cap[area] |= {priv: 1 for priv in privs if re.match(_CAP[area], priv)}
    return cap


@route("GET", "/access/permissions")
def permissions(call: Call) -> dict[str, dict[str, int]]:
    """Return privileges by path: the caller's, or with Sys.Audit on /access those of any user."""
    authid = call.get("userid", call.permit.authid)
    if authid != call.permit.authid and owner(authid) != call.permit.authid:
        call.permit.need("/access", ["Sys.Audit"])
    if "path" not in call.params:
        return call.node.access.overview(authid)
    path = acl_path(call["path"])
    if path is None:
        raise parameter_error(path=f"invalid ACL path '{call['path']}'")
    return {path: call.node.access.privileges(authid, path)}


@route("GET", "/access/acl")
def acl(call: Call) -> list[dict[str, Any]]:
    """Return the entries on paths where the caller may change permissions."""
    entries: list[dict[str, Any]] = call.node.access.data["acl"]
    return [a for a in entries if call.permit.has(a["path"], ["Permissions.Modify"])]


@route("PUT", "/access/acl")
def update_acl(call: Call) -> None:
    """Add roles on a path to users and tokens, or remove them with ``delete``."""
    path = acl_path(call["path"])
    if path is None:
        raise parameter_error(path=f"invalid ACL path '{call['path']}'")
    if call.get("groups"):
        raise ApiError(f"no such group '{split_list(call['groups'])[0]}'")
    holders = split_list(call.get("users", "")) + split_list(call.get("tokens", ""))
    if not holders:
        raise parameter_error(users="property is missing and it is not optional")
    with error_prefix("ACL update failed: "), call.node.access.change() as data:
        for roleid in split_list(call["roles"]):
            for ugid in holders:
                _require(call, path, roleid, ugid)
                if call.get("delete"):
                    revoke(data, path, roleid, ugid)
                else:
                    grant(data, path, roleid, ugid, call.get("propagate", 1))


def _require(call: Call, path: str, roleid: str, ugid: str) -> None:
    if roleid not in call.node.access.roles():
        raise ApiError(f"role '{roleid}' does not exist")
    _check_superset(call, path, roleid)
    if owner(ugid) not in call.node.access.data["users"]:
        raise ApiError(f"user '{owner(ugid)}' does not exist")
    if "!" in ugid and call.node.access.token(ugid) is None:
        raise ApiError(f"no such token '{ugid.partition('!')[2]}' for user '{owner(ugid)}'")


def _check_superset(call: Call, path: str, roleid: str) -> None:
    """Raise 400 when a caller without Permissions.Modify grants more than their own privileges."""
    if call.permit.is_root or call.permit.has(path, ["Permissions.Modify"]):
        return
    privs = call.node.access.roles()[roleid]
    if not privs or not call.permit.has(path, privs):
        verb = "remove" if call.get("delete") else "add"
        text = f"Cannot {verb} role '{roleid}' - requires 'Permissions.Modify' or superset of privileges."
        raise parameter_error(role=text)


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


def user_row(userid: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return a user's row in lists."""
    fields = {key: entry[key] for key in _USER_FIELDS if entry.get(key) not in (None, "")}
    return {"userid": userid, "expire": 0, "realm-type": userid.partition("@")[2]} | fields


def token_row(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return a token's row in lists, without its secret."""
    return {"tokenid": name} | {key: entry[key] for key in ("privsep", "expire", "comment") if key in entry}


@route("GET", "/access/users")
def users(call: Call) -> list[dict[str, Any]]:
    """Return all users if the caller may see them, else only the caller."""
    sees_all = call.permit.has("/access/groups", ["User.Modify", "Sys.Audit"], any_of=True)
    rows = []
    for userid, entry in sorted(call.node.access.data["users"].items()):
        row = user_row(userid, entry)
        if not (sees_all or userid == owner(call.permit.authid)):
            continue
        if "enabled" in call.params and call["enabled"] != row.get("enable", 1):
            continue
        if call.get("full"):
            row |= {"groups": "", "tokens": [token_row(n, t) for n, t in sorted(entry["tokens"].items())]}
        rows.append(row)
    return rows


@route("POST", "/access/users")
def create_user(call: Call) -> None:
    """Create a user of the realm pam or pve."""
    userid = call["userid"]
    if userid.rpartition("@")[2] not in ("pam", "pve"):
        raise ApiError(f"domain '{userid.rpartition('@')[2]}' does not exist")
    with error_prefix("create user failed: "), call.node.access.change() as data:
        if userid in data["users"]:
            raise ApiError(f"user '{userid}' already exists")
        entry = {"enable": 1, "tokens": {}} | {key: call[key] for key in _USER_FIELDS if key in call.params}
        if "password" in call.params:
            entry["password"] = hash_secret(call["password"])
        data["users"][userid] = entry


@route("GET", "/access/users/{userid}")
def user(call: Call) -> dict[str, Any]:
    """Return a user with its tokens."""
    entry = call.node.access.user(call["userid"])
    row = user_row(call["userid"], entry)
    del row["userid"]
    return row | {"tokens": {n: token_row(n, t) for n, t in entry["tokens"].items()}, "groups": []}


@route("PUT", "/access/users/{userid}")
def update_user(call: Call) -> None:
    call.node.access.user(call["userid"])
    with call.node.access.change() as data:
        data["users"][call["userid"]] |= {key: call[key] for key in _USER_FIELDS if key in call.params}


@route("DELETE", "/access/users/{userid}")
def delete_user(call: Call) -> None:
    """Remove a user, its tokens and their entries in the access-control list."""
    userid = call["userid"]
    if userid == ROOT:
        raise ApiError("unable to delete user 'root@pam'")
    call.node.access.user(userid)
    with call.node.access.change() as data:
        del data["users"][userid]
        data["acl"] = [a for a in data["acl"] if owner(a["ugid"]) != userid]


@route("PUT", "/access/password")
def change_password(call: Call) -> None:
    """Set a password. Only root@pam may set root@pam's."""
    if call["userid"] == ROOT and not call.permit.is_root:
        raise denied()
    call.node.access.user(call["userid"])
    with call.node.access.change() as data:
        data["users"][call["userid"]]["password"] = hash_secret(call["password"])
