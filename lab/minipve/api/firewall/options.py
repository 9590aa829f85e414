"""The firewall's options. The other parts are in firewall_rules.py and firewall_objects.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from minipve.api.routing import CT, VM, children, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config.rules import schema
from minipve.config.rules.formats import split_list
from minipve.config.rules.schema import LXC
from minipve.node import firewall
from minipve.node.call import Call

CLUSTER, NODE = "/cluster/firewall", "/nodes/{node}/firewall"
GUESTS = (f"{VM}/firewall", f"{CT}/firewall")
ALL = (CLUSTER, NODE, *GUESTS)
MACROS = Path(__file__).with_name("macros.txt")
_CONTROL = {"node", "vmid", "delete", "digest"}


def scope(call: Call) -> str:
    """Return the name of the configuration that a call is about."""
    if "vmid" in call.params:
        return str(call.vmid)
    return f"node-{call.node.name}" if "node" in call.params else firewall.CLUSTER


def check_digest(call: Call, actual: str) -> None:
    """Raise 500 when the caller read another version."""
    if call.get("digest") not in (None, "", actual):
        raise ApiError(LXC.modified)


def _declare(path: str) -> None:
    @route("GET", path)
    def index(call: Call) -> list[dict[str, str]]:
        return [{"name": name} for name in children(path)]

    @route("GET", f"{path}/options")
    def read(call: Call) -> dict[str, Any]:
        """Return the options and their digest, also for a VMID without a guest."""
        options = firewall.load(call.node, scope(call))["options"]
        values = {key: _typed(path, key, value) for key, value in options.items()}
        return values | {"digest": firewall.options_digest(options)}

    @route("PUT", f"{path}/options")
    def update(call: Call) -> None:
        """Set and delete options. The cluster's firewall cannot be enabled."""
        if path == CLUSTER and call.get("enable"):
            raise parameter_error(enable="minipve has no firewall, so only 0 is supported")
        with firewall.change(call.node, scope(call)) as config:
            options = config["options"]
            check_digest(call, firewall.options_digest(options))
            for name in split_list(call.get("delete", "")):
                if name not in _properties(path):
                    raise parameter_error(delete=f"no such option '{name}'")
                options.pop(name, None)
            options |= {key: str(value) for key, value in call.params.items() if key not in _CONTROL}


for _path in ALL:
    _declare(_path)


@route("GET", f"{CLUSTER}/macros")
def macros(call: Call) -> list[dict[str, str]]:
    """Return the names that a rule's ``macro`` may have on a node."""
    return _macros()


@cache
def _macros() -> list[dict[str, str]]:
    rows = (line.split(maxsplit=1) for line in MACROS.read_text().splitlines())
    return [{"macro": name, "descr": text} for name, text in rows]


def _properties(path: str) -> dict[str, dict[str, Any]]:
    properties = schema.method("PUT", f"{path}/options").properties
    return {key: facts for key, facts in properties.items() if key not in _CONTROL}


def _typed(path: str, key: str, value: str) -> str | int:
    return int(value) if _properties(path)[key].get("type") in ("boolean", "integer") else value
