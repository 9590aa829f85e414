"""Users and their passwords. Tokens are in tokens.py."""

from __future__ import annotations

from typing import Any

from minipve.access.accounts import ROOT, join_groups, owner
from minipve.access.tickets import hash_secret
from minipve.api.routing import route
from minipve.base.errors import ApiError, denied, error_prefix
from minipve.config.rules.formats import split_list
from minipve.node.call import Call

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
