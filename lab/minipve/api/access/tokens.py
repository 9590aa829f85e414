"""API tokens of users: list, create, change, delete."""

from __future__ import annotations

import uuid
from typing import Any

from minipve.access.accounts import revoke
from minipve.access.tickets import token_digest
from minipve.api.access.users import token_row
from minipve.api.routing import route
from minipve.base.errors import ApiError
from minipve.node.call import Call

_TOKEN = "/access/users/{userid}/token/{tokenid}"


def _existing(call: Call) -> dict[str, Any]:
    entry: dict[str, Any] | None = call.node.access.user(call["userid"])["tokens"].get(call["tokenid"])
    if entry is None:
        raise ApiError(f"no such token '{call['tokenid']}' for user '{call['userid']}'")
    return entry


@route("GET", "/access/users/{userid}/token")
def index(call: Call) -> list[dict[str, Any]]:
    tokens = call.node.access.user(call["userid"])["tokens"]
    return [token_row(name, entry) for name, entry in sorted(tokens.items())]


@route("GET", _TOKEN)
def read(call: Call) -> dict[str, Any]:
    row = token_row(call["tokenid"], _existing(call))
    del row["tokenid"]
    return row


@route("POST", _TOKEN)
def create(call: Call) -> dict[str, Any]:
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
def update(call: Call) -> dict[str, Any]:
    _existing(call)
    with call.node.access.change() as data:
        entry = data["users"][call["userid"]]["tokens"][call["tokenid"]]
        entry |= {key: call[key] for key in ("privsep", "expire", "comment") if key in call.params}
    return token_row(call["tokenid"], _existing(call))


@route("DELETE", _TOKEN)
def delete(call: Call) -> None:
    """Remove a token and its entries in the access-control list."""
    _existing(call)
    with call.node.access.change() as data:
        del data["users"][call["userid"]]["tokens"][call["tokenid"]]
        revoke(data, None, None, f"{call['userid']}!{call['tokenid']}")
