"""What firewall rules refer to: security groups, aliases of addresses, sets of addresses."""

from __future__ import annotations

from typing import Any

from minipve.api.firewall.options import CLUSTER, GUESTS, check_digest, scope
from minipve.api.routing import route
from minipve.base.errors import ApiError, parameter_error
from minipve.node import firewall
from minipve.node.call import Call

_GROUPS = f"{CLUSTER}/groups"
Row = dict[str, Any]


def _set_params(call: Call, *names: str) -> Row:
    """Return the parameters ``names`` that the caller has set."""
    return {name: call[name] for name in names if call.get(name)}


@route("GET", _GROUPS)
def groups(call: Call) -> list[Row]:
    """Return the security groups, without their rules."""
    stored = firewall.load(call.node, firewall.CLUSTER)["groups"]
    digest = firewall.digest(stored)
    return [{"group": name, "digest": digest} | _comment(group) for name, group in sorted(stored.items())]


def _comment(entry: Row) -> Row:
    return {"comment": entry["comment"]} if entry.get("comment") else {}


@route("POST", _GROUPS)
def create_group(call: Call) -> None:
    """Add a security group, or with ``rename`` rename one and the rules that use it."""
    name, old = call["group"], call.get("rename")
    with firewall.change(call.node, firewall.CLUSTER) as config:
        stored = config["groups"]
        if old is None:
            if name in stored:
                raise parameter_error(group=f"Security group '{name}' already exists")
            stored[name] = {"rules": []} | _set_params(call, "comment")
            return
        check_digest(call, firewall.digest(stored))
        if old not in stored:
            raise parameter_error(group=f"Security group '{old}' does not exist")
        if name != old and name in stored:
            raise parameter_error(group=f"Security group '{name}' does already exist")
        stored[name] = stored.pop(old) | _set_params(call, "comment")
        for rule in config["rules"]:
            if (rule["type"], rule["action"]) == ("group", old):
                rule["action"] = name


@route("DELETE", f"{_GROUPS}/{{group}}")
def delete_group(call: Call) -> None:
    """Remove a security group without rules."""
    name = call["group"]
    with firewall.change(call.node, firewall.CLUSTER) as config:
        if name not in config["groups"]:
            raise ApiError(f"no such security group '{name}'")
        if config["groups"][name]["rules"]:
            raise ApiError(f"Security group '{name}' is not empty")
        del config["groups"][name]


def _declare_aliases(path: str) -> None:
    @route("GET", path)
    def index(call: Call) -> list[Row]:
        aliases = firewall.load(call.node, scope(call))["aliases"]
        digest = firewall.digest(aliases)
        return [alias | {"digest": digest} for _, alias in sorted(aliases.items())]

    @route("POST", path)
    def create(call: Call) -> None:
        with firewall.change(call.node, scope(call)) as config:
            if call["name"].lower() in config["aliases"]:
                raise parameter_error(name=f"alias '{call['name']}' already exists")
            config["aliases"][call["name"].lower()] = _set_params(call, "name", "cidr", "comment")

    @route("GET", f"{path}/{{name}}")
    def read(call: Call) -> Row:
        return _alias(call, firewall.load(call.node, scope(call)))

    @route("PUT", f"{path}/{{name}}")
    def update(call: Call) -> None:
        """Replace an alias, and with ``rename`` its name."""
        with firewall.change(call.node, scope(call)) as config:
            check_digest(call, firewall.digest(config["aliases"]))
            _alias(call, config)
            old, new = call["name"].lower(), call.get("rename", call["name"])
            if new.lower() != old and new.lower() in config["aliases"]:
                raise parameter_error(name=f"alias '{new}' already exists")
            del config["aliases"][old]
            config["aliases"][new.lower()] = _set_params(call, "cidr", "comment") | {"name": new}

    @route("DELETE", f"{path}/{{name}}")
    def delete(call: Call) -> None:
        """Remove an alias. PVE, too, accepts an unknown one."""
        with firewall.change(call.node, scope(call)) as config:
            check_digest(call, firewall.digest(config["aliases"]))
            config["aliases"].pop(call["name"].lower(), None)


def _alias(call: Call, config: firewall.Config) -> Row:
    if call["name"].lower() not in config["aliases"]:
        raise parameter_error(name="no such alias")
    alias: Row = config["aliases"][call["name"].lower()]
    return alias


def _declare_ipsets(path: str) -> None:
    @route("GET", path)
    def index(call: Call) -> list[Row]:
        ipsets = firewall.load(call.node, scope(call))["ipset"]
        digest = firewall.digest(ipsets)
        return [{"name": name, "digest": digest} | _comment(ipset) for name, ipset in sorted(ipsets.items())]

    @route("POST", path)
    def create(call: Call) -> None:
        """Add a set of addresses, or with ``rename`` rename one."""
        name, old = call["name"], call.get("rename")
        with firewall.change(call.node, scope(call)) as config:
            stored = config["ipset"]
            if old is None:
                if name in stored:
                    raise parameter_error(name=f"IPSet '{name}' already exists")
                stored[name] = {"entries": []} | _set_params(call, "comment")
                return
            check_digest(call, firewall.digest(stored))
            if old not in stored:
                raise parameter_error(name=f"IPSet '{old}' does not exist")
            if name != old and name in stored:
                raise parameter_error(name=f"IPSet '{name}' does already exist")
            stored[name] = stored.pop(old) | _set_params(call, "comment")

    _declare_entries(f"{path}/{{name}}")


def _declare_entries(path: str) -> None:
    @route("GET", path)
    def entries(call: Call) -> list[Row]:
        rows = _entries(call, firewall.load(call.node, scope(call)))
        digest = firewall.digest(rows)
        return [row | {"digest": digest} for row in rows]

    @route("POST", path)
    def add(call: Call) -> None:
        with firewall.change(call.node, scope(call)) as config:
            rows = _entries(call, config)
            if any(row["cidr"] == call["cidr"] for row in rows):
                raise parameter_error(cidr=f"address '{call['cidr']}' already exists")
            if call["cidr"].endswith("/0"):
                raise parameter_error(cidr="a zero prefix is not allowed in ipset entries")
            rows.insert(0, _set_params(call, "cidr", "nomatch", "comment"))

    @route("DELETE", path)
    def delete(call: Call) -> None:
        """Remove an empty set, or with ``force`` any set."""
        with firewall.change(call.node, scope(call)) as config:
            if _entries(call, config) and not call.get("force"):
                raise ApiError(f"IPSet '{call['name']}' is not empty")
            del config["ipset"][call["name"]]

    @route("GET", f"{path}/{{cidr}}")
    def read(call: Call) -> Row:
        return _entry(call, _entries(call, firewall.load(call.node, scope(call))))

    @route("PUT", f"{path}/{{cidr}}")
    def update(call: Call) -> None:
        with firewall.change(call.node, scope(call)) as config:
            rows = _entries(call, config)
            check_digest(call, firewall.digest(rows))
            entry = _entry(call, rows)
            entry.clear()
            entry |= _set_params(call, "cidr", "nomatch", "comment")

    @route("DELETE", f"{path}/{{cidr}}")
    def remove(call: Call) -> None:
        """Remove an address. PVE, too, accepts an unknown one."""
        with firewall.change(call.node, scope(call)) as config:
            rows = _entries(call, config)
            check_digest(call, firewall.digest(rows))
            rows[:] = [row for row in rows if row["cidr"] != call["cidr"]]


def _entries(call: Call, config: firewall.Config) -> list[Row]:
    if call["name"] not in config["ipset"]:
        raise ApiError(f"no such IPSet '{call['name']}'")
    entries: list[Row] = config["ipset"][call["name"]]["entries"]
    return entries


def _entry(call: Call, rows: list[Row]) -> Row:
    entry = next((row for row in rows if row["cidr"] == call["cidr"]), None)
    if entry is None:
        raise parameter_error(cidr="no such IP/Network")
    return entry


for _path in (CLUSTER, *GUESTS):
    _declare_aliases(f"{_path}/aliases")
    _declare_ipsets(f"{_path}/ipset")
