"""Firewall options of guests, which clients use to switch the firewall of a new guest off."""

from __future__ import annotations

import threading
from typing import Any

from minipve import firewall
from minipve.api import CT, VM, route
from minipve.config import schema
from minipve.config.formats import split_list
from minipve.config.kinds import LXC
from minipve.errors import ApiError, parameter_error
from minipve.node import Call

_CONTROL = {"delete", "digest"}
_lock = threading.Lock()


@route("GET", f"{CT}/firewall")
@route("GET", f"{VM}/firewall")
def directory(call: Call) -> list[dict[str, str]]:
    """Return the implemented names below this path."""
    return [{"name": "options"}]


@route("GET", f"{CT}/firewall/options")
@route("GET", f"{VM}/firewall/options")
def read(call: Call) -> dict[str, Any]:
    """Return the options and their digest, also for a VMID without a guest."""
    options = firewall.load(call.node, call.vmid)
    return {key: _typed(key, value) for key, value in options.items()} | {"digest": firewall.digest(options)}


@route("PUT", f"{CT}/firewall/options")
@route("PUT", f"{VM}/firewall/options")
def update(call: Call) -> None:
    """Set and delete options. The firewall itself cannot be enabled."""
    if call.get("enable"):
        raise parameter_error(enable="minipve has no firewall, so only 0 is supported")
    with _lock:
        options = firewall.load(call.node, call.vmid)
        if call.get("digest") not in (None, "", firewall.digest(options)):
            raise ApiError(LXC.modified)
        for name in split_list(call.get("delete", "")):
            if name in _CONTROL or name not in _properties():
                raise parameter_error(delete=f"no such option '{name}'")
            options.pop(name, None)
        changed = {key: str(value) for key, value in call.options.items() if key not in _CONTROL}
        firewall.save(call.node, call.vmid, options | changed)


def _properties() -> dict[str, dict[str, Any]]:
    properties = schema.method("PUT", f"{CT}/firewall/options").properties
    return {key: facts for key, facts in properties.items() if key not in ("node", "vmid")}


def _typed(key: str, value: str) -> str | int:
    return int(value) if _properties()[key].get("type") == "boolean" else value
