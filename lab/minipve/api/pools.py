"""Resource pools: named sets of guests and storages that share permissions."""

from __future__ import annotations

from typing import Any

from minipve.access import permissions
from minipve.api.routing import route
from minipve.base.errors import ApiError, error_prefix
from minipve.config import drives
from minipve.config.rules.formats import split_list
from minipve.guests.rows import guest_resource
from minipve.guests.vm import summary
from minipve.node.call import Call


def _pool(data: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in data["pools"]:
        raise ApiError(f"pool '{name}' does not exist")
    pool: dict[str, Any] = data["pools"][name]
    return pool


def _members(call: Call, pool: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for node in call.node.visit():
        members = [(vmid, config) for vmid, config in node.guests() if vmid in pool["vms"]]
        rows += [guest_resource(node, vmid, config) for vmid, config in members]
        rows += [summary.storage_resource(node) for store in pool["storage"] if store == drives.STORAGE]
    return [row for row in rows if call.get("type") in (None, row["type"])]


def _detail(call: Call, name: str) -> dict[str, Any]:
    pool = _pool(call.node.access.data, name)
    comment = {"comment": pool["comment"]} if pool.get("comment") else {}
    return {"poolid": name, "members": _members(call, pool)} | comment


@route("GET", "/pools")
def index(call: Call) -> list[dict[str, Any]]:
    """Return all pools that the caller may see, or the requested one with its members."""
    if name := call.get("poolid"):
        return [_detail(call, name)]  # PVE requires no privilege for this
    pools = call.node.access.data["pools"]
    visible = [name for name in sorted(pools) if call.permit.has(f"/pool/{name}", ["Pool.Audit"])]
    return [{"poolid": n} | ({"comment": c} if (c := pools[n].get("comment")) else {}) for n in visible]


@route("GET", "/pools/{poolid}")
def read(call: Call) -> dict[str, Any]:
    return _detail(call, call["poolid"])


@route("POST", "/pools")
def create(call: Call) -> None:
    with error_prefix("create pool failed: "), call.node.access.change() as data:
        _check_name(data, call["poolid"])
        data["pools"][call["poolid"]] = {"comment": call.get("comment", ""), "vms": [], "storage": []}


def _check_name(data: dict[str, Any], name: str) -> None:
    parent, _, leaf = name.rpartition("/")
    if name in data["pools"]:
        raise ApiError(f"pool '{name}' already exists")
    if parent and parent not in data["pools"]:
        raise ApiError(f"parent '{parent}' of pool '{name}' does not exist")
    if not leaf[:1].isalpha():
        raise ApiError("pool name must start with a letter")


@route("PUT", "/pools")
@route("PUT", "/pools/{poolid}")
def update(call: Call) -> None:
    """Change the comment. Add members, or remove them with ``delete``."""
    with error_prefix("update pools failed: "), call.node.access.change() as data:
        pool = _pool(data, call["poolid"])
        if "comment" in call.params:
            pool["comment"] = call["comment"]
        for vmid in map(int, split_list(call.get("vms", ""))):
            call.permit.need_right(permissions.POOL_GUEST, vmid=vmid)
            _change_vm(call, data, pool, vmid)
        for store in split_list(call.get("storage", "")):
            call.permit.need_right(permissions.POOL_STORAGE, storage=store)
            _change_member(pool["storage"], store, f"Storage '{store}'", bool(call.get("delete")))


def _change_vm(call: Call, data: dict[str, Any], pool: dict[str, Any], vmid: int) -> None:
    other = next((n for n, p in data["pools"].items() if vmid in p["vms"] and p is not pool), None)
    if other and not call.get("delete"):
        if not call.get("allow-move"):
            raise ApiError(f"VM {vmid} belongs already to pool '{other}' and 'allow-move' is not set")
        call.permit.need_right(permissions.PRESENT_POOL, pool=other)
        data["pools"][other]["vms"].remove(vmid)
    _change_member(pool["vms"], vmid, f"VM {vmid}", bool(call.get("delete")))


def _change_member(members: list[Any], member: Any, label: str, delete: bool) -> None:
    if delete != (member in members):
        raise ApiError(f"{label} is {'not a' if delete else 'already a'} pool member")
    members.remove(member) if delete else members.append(member)


@route("DELETE", "/pools")
@route("DELETE", "/pools/{poolid}")
def delete(call: Call) -> None:
    name = call["poolid"]
    with error_prefix("delete pool failed: "), call.node.access.change() as data:
        members = [f"pool '{other}'" for other in sorted(data["pools"]) if other.startswith(f"{name}/")]
        members += [f"VM {vmid}" for vmid in _pool(data, name)["vms"] if vmid in call.node.vmids()]
        members += [f"storage '{store}'" for store in _pool(data, name)["storage"]]
        if members:
            raise ApiError(f"pool '{name}' is not empty (contains {members[0]})")
        del data["pools"][name]
