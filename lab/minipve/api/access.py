"""Login, realms, users, tokens, groups, roles and the access-control list."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from typing import Any

from minipve.access.accounts import ROOT, acl_path, grant, join_groups, owner, revoke
from minipve.access.permissions import modifying
from minipve.access.tickets import hash_secret, token_digest
from minipve.api.routing import route
from minipve.base.errors import ApiError, denied, error_prefix, parameter_error
from minipve.config.rules.formats import split_list
from minipve.config.rules.privileges import BUILTIN_ROLES
from minipve.node.call import Call

# Login, realms, permissions, access-control list.

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


@route("GET", "/access/domains")
def domains(call: Call) -> list[dict[str, Any]]:
    return _REALMS


@route("GET", "/access/domains/{realm}")
def domain(call: Call) -> dict[str, Any]:
    """Return the configuration of a realm."""
    row = next((dict(row) for row in _REALMS if row["realm"] == call["realm"]), None)
    if row is None:
        raise ApiError(f"domain '{call['realm']}' does not exist")
    del row["realm"]
    return row | {"digest": hashlib.sha1(repr(_REALMS).encode(), usedforsecurity=False).hexdigest()}


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
        call.permit.require("/access", ["Sys.Audit"])
    if "path" not in call.params:
        return call.node.access.overview(authid)
    path = acl_path(call["path"])
    if path is None:
        raise parameter_error(path=f"invalid ACL path '{call['path']}'")
    return {path: call.node.access.privileges(authid, path)}


@route("GET", "/access/acl")
def acl(call: Call) -> list[dict[str, Any]]:
    """Return the entries on paths whose permissions the caller may change; all, with Sys.Audit on /access."""
    entries: list[dict[str, Any]] = call.node.access.data["acl"]
    sees_all = call.permit.has("/access", ["Sys.Audit"])
    return [a for a in entries if sees_all or call.permit.has(a["path"], modifying(a["path"]), any_of=True)]


@route("PUT", "/access/acl")
def update_acl(call: Call) -> None:
    """Add roles on a path to users, groups and tokens, or remove them with ``delete``."""
    kinds = ("groups", "users", "tokens")
    if not any(call.get(kind) for kind in kinds):
        raise parameter_error(**dict.fromkeys(kinds, "either 'users', 'groups' or 'tokens' is required."))
    path = acl_path(call["path"])
    if path is None:
        raise parameter_error(path=f"invalid ACL path '{call['path']}'")
    holders = [holder for kind in kinds for holder in split_list(call.get(kind, ""))]
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
    if "@" not in ugid:
        if ugid not in call.node.access.data["groups"]:
            raise ApiError(f"group '{ugid}' does not exist")
        return
    if owner(ugid) not in call.node.access.data["users"]:
        raise ApiError(f"user '{owner(ugid)}' does not exist")
    if "!" in ugid and call.node.access.token(ugid) is None:
        raise ApiError(f"no such token '{ugid.partition('!')[2]}' for user '{owner(ugid)}'")


def _check_superset(call: Call, path: str, roleid: str) -> None:
    """Raise 400 when a caller without Permissions.Modify grants more than their own privileges.

    A privilege that the caller holds on ``path`` alone cannot be granted on the paths below.
    """
    privileges = call.node.access.privileges(call.permit.authid, path)
    if "Permissions.Modify" in privileges:
        return
    needed, verb = call.node.access.roles()[roleid], "remove" if call.get("delete") else "add"
    propagates = call.get("propagate", 1) and verb == "add"
    if not needed or not needed <= privileges.keys():
        text = f"Cannot {verb} role '{roleid}' - requires 'Permissions.Modify' or superset of privileges."
    elif propagates and not all(privileges[priv] for priv in needed):
        text = f"Cannot {verb} role '{roleid}' with propagation - requires 'Permissions.Modify' or "
        text += "propagated superset of privileges."
    else:
        return
    raise parameter_error(role=text)


# Users and their passwords. Tokens are in tokens.py.

_USER_FIELDS = ("enable", "expire", "comment", "email", "firstname", "lastname")


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
    access, privileges = call.node.access, ["User.Modify", "Sys.Audit"]
    sees_all = call.permit.has("/access/groups", privileges, any_of=True)
    visible = {owner(call.permit.authid), *call.permit.members_of_groups(privileges)}
    rows = []
    for userid, entry in sorted(access.data["users"].items()):
        row = user_row(userid, entry)
        if not (sees_all or userid in visible):
            continue
        if "enabled" in call.params and call["enabled"] != row.get("enable", 1):
            continue
        if call.get("full"):
            row["groups"] = ",".join(access.groups_of(userid))
            row["tokens"] = [token_row(name, token) for name, token in sorted(entry["tokens"].items())]
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
        join_groups(data, userid, split_list(call.get("groups", "")))
        data["users"][userid] = entry


@route("GET", "/access/users/{userid}")
def user(call: Call) -> dict[str, Any]:
    """Return a user with its tokens."""
    entry = call.node.access.user(call["userid"])
    row = user_row(call["userid"], entry)
    del row["userid"], row["realm-type"]
    row["tokens"] = {name: token_row(name, token) for name, token in entry["tokens"].items()}
    return row | {"groups": call.node.access.groups_of(call["userid"])}


@route("PUT", "/access/users/{userid}")
def update_user(call: Call) -> None:
    userid = call["userid"]
    with error_prefix("update user failed: "), call.node.access.change() as data:
        call.node.access.user(userid)
        data["users"][userid] |= {key: call[key] for key in _USER_FIELDS if key in call.params}
        if "groups" in call.params:
            join_groups(data, userid, split_list(call["groups"]), append=bool(call.get("append")))


@route("DELETE", "/access/users/{userid}")
def delete_user(call: Call) -> None:
    """Remove a user, its tokens and their entries in the access-control list."""
    userid = call["userid"]
    if userid == ROOT:
        raise ApiError("unable to delete user 'root@pam'")
    call.node.access.user(userid)
    with call.node.access.change() as data:
        del data["users"][userid]
        join_groups(data, userid, [])
        data["acl"] = [a for a in data["acl"] if owner(a["ugid"]) != userid]


@route("PUT", "/access/password")
def change_password(call: Call) -> None:
    """Set a password. Only root@pam may set root@pam's."""
    if call["userid"] == ROOT and not call.permit.is_root:
        raise denied()
    call.node.access.user(call["userid"])
    with call.node.access.change() as data:
        data["users"][call["userid"]]["password"] = hash_secret(call["password"])


# API tokens of users: list, create, change, delete.

_TOKEN = "/access/users/{userid}/token/{tokenid}"


def _existing(call: Call) -> dict[str, Any]:
    entry: dict[str, Any] | None = call.node.access.user(call["userid"])["tokens"].get(call["tokenid"])
    if entry is None:
        raise ApiError(f"no such token '{call['tokenid']}' for user '{call['userid']}'")
    return entry


@route("GET", "/access/users/{userid}/token")
def list_tokens(call: Call) -> list[dict[str, Any]]:
    tokens = call.node.access.user(call["userid"])["tokens"]
    return [token_row(name, entry) for name, entry in sorted(tokens.items())]


@route("GET", _TOKEN)
def read_token(call: Call) -> dict[str, Any]:
    row = token_row(call["tokenid"], _existing(call))
    del row["tokenid"]
    return row


@route("POST", _TOKEN)
def create_token(call: Call) -> dict[str, Any]:
    """Create a token. Only this answer contains its secret."""
    if call["tokenid"] in call.node.access.user(call["userid"])["tokens"]:
        raise ApiError("Parameter verification failed.", 400, {"tokenid": "Token already exists."})
    secret = str(uuid.uuid4())
    info: dict[str, Any] = {"privsep": call.get("privsep", 1), "expire": call.get("expire", 0)}
    info |= {"comment": call["comment"]} if "comment" in call.params else {}
    with call.node.access.change() as data:
        entry = info | {"secret": token_digest(secret)}
        data["users"][call["userid"]]["tokens"][call["tokenid"]] = entry
    return {"full-tokenid": f"{call['userid']}!{call['tokenid']}", "info": info, "value": secret}


@route("PUT", _TOKEN)
def update_token(call: Call) -> dict[str, Any]:
    _existing(call)
    with call.node.access.change() as data:
        entry = data["users"][call["userid"]]["tokens"][call["tokenid"]]
        entry |= {key: call[key] for key in ("privsep", "expire", "comment") if key in call.params}
    return token_row(call["tokenid"], _existing(call))


@route("DELETE", _TOKEN)
def delete_token(call: Call) -> None:
    """Remove a token and its entries in the access-control list."""
    _existing(call)
    with call.node.access.change() as data:
        del data["users"][call["userid"]]["tokens"][call["tokenid"]]
        revoke(data, None, None, f"{call['userid']}!{call['tokenid']}")


# Groups of users: list, create, change, delete.

_SEE = ("User.Modify", "Sys.Audit", "Group.Allocate")


def _group(data: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in data["groups"]:
        raise ApiError(f"group '{name}' does not exist")
    group: dict[str, Any] = data["groups"][name]
    return group


def _comment(group: dict[str, Any]) -> dict[str, str]:
    return {"comment": group["comment"]} if "comment" in group else {}


@route("GET", "/access/groups")
def list_groups(call: Call) -> list[dict[str, Any]]:
    """Return the groups that the caller may see, with their members as a list in one text."""
    return [
        {"groupid": name, "users": ",".join(sorted(group["users"]))} | _comment(group)
        for name, group in sorted(call.node.access.data["groups"].items())
        if call.permit.has(f"/access/groups/{name}", _SEE, any_of=True)
    ]


@route("POST", "/access/groups")
def create_group(call: Call) -> None:
    name = call["groupid"]
    with error_prefix("create group failed: "), call.node.access.change() as data:
        if name in data["groups"]:
            raise ApiError(f"group '{name}' already exists")
        comment = {"comment": call["comment"]} if call.get("comment") else {}
        data["groups"][name] = {"users": []} | comment


@route("GET", "/access/groups/{groupid}")
def read_group(call: Call) -> dict[str, Any]:
    """Return a group's members and its comment."""
    group = _group(call.node.access.data, call["groupid"])
    return {"members": sorted(group["users"])} | _comment(group)


@route("PUT", "/access/groups/{groupid}")
def update_group(call: Call) -> None:
    """Change the comment. Users join a group by their own options."""
    with error_prefix("update group failed: "), call.node.access.change() as data:
        group = _group(data, call["groupid"])
        if "comment" in call.params:
            group["comment"] = call["comment"]


@route("DELETE", "/access/groups/{groupid}")
def delete_group(call: Call) -> None:
    """Remove a group and its entries in the access-control list. Its users stay."""
    with error_prefix("delete group failed: "), call.node.access.change() as data:
        _group(data, call["groupid"])
        del data["groups"][call["groupid"]]
        data["acl"] = [a for a in data["acl"] if (a["type"], a["ugid"]) != ("group", call["groupid"])]


# Roles: built-in ones, and those of users.


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
