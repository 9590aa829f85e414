"""Login, realms, permissions, access-control list."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any

from minipve.access.accounts import acl_path, grant, owner, revoke
from minipve.access.permit import modifying
from minipve.api.routing import route
from minipve.base.errors import ApiError, error_prefix, parameter_error
from minipve.config.rules.formats import split_list
from minipve.node.call import Call

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
