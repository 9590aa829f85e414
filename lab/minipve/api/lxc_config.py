"""A container's configuration: read, change (always at once), what is pending."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minipve.api import CT, check_first, route
from minipve.config import container_nics
from minipve.config import pending as waiting
from minipve.config.formats import split_list
from minipve.config.kinds import LXC
from minipve.container import changes, options
from minipve.errors import ApiError, parameter_error
from minipve.network import veths
from minipve.node import Call
from minipve.tasks import Task

_CONTROL = {"delete", "revert", "digest"}


@route("GET", f"{CT}/config")
def read(call: Call) -> dict[str, Any]:
    """The configuration as it will be after the next start; with ``current`` as it is now."""
    config = call.node.containers.load(call.vmid)
    if "snapshot" in call.params:
        raise ApiError(f"snapshot '{call['snapshot']}' does not exist")
    chosen = config.options if call.get("current") else config.merged()
    return {key: waiting.api_value(key, value, LXC) for key, value in chosen.items()} | {
        "digest": config.digest
    }


@route("GET", f"{CT}/pending")
def pending(call: Call) -> list[dict[str, Any]]:
    """Current and pending values side by side."""
    return waiting.rows(call.node.containers.load(call.vmid))


@check_first("PUT", f"{CT}/config")
def check_update(call: Call) -> None:
    """Everything that is refused before volumes are looked at and the lock is taken."""
    deleted, reverted, given = _asked(call)
    if not given and not deleted and not reverted:
        raise ApiError("no options specified")
    config = call.node.containers.load(call.vmid)
    config.check_lock()
    config.check_digest(call.get("digest"))
    options.check(call.permit, call.vmid, None, {}, config.options, [*deleted, *reverted])
    for name in reverted:
        waiting.check_exists(name, LXC, "revert")
        if name in given:
            raise parameter_error(revert=f"you can't use '-{name}' and '-revert {name}' at the same time")
    for name in deleted:
        waiting.check_exists(name, LXC, "delete")
        if name in given:  # the odd quote is the node's
            raise parameter_error(delete=f"you can't use '-{name}' and -delete {name}' at the same time")
        if name in reverted:
            text = f"you can't use '-delete {name}' and '-revert {name}' at the same time"
            raise parameter_error(delete=text)
    options.check(call.permit, call.vmid, None, given, config.options)


def _asked(call: Call) -> tuple[list[str], list[str], dict[str, str]]:
    """The names to delete, the names to revert, the options to set."""
    deleted, reverted = (split_list(call.get(name, "")) for name in ("delete", "revert"))
    return deleted, reverted, {k: str(v) for k, v in call.options.items() if k not in _CONTROL}


@route("PUT", f"{CT}/config")
def update(call: Call) -> None:
    """Change options; waits for the container's lock, and for the container."""
    deleted, reverted, given = _asked(call)
    options.refuse(given)
    vmid, store = call.vmid, call.node.containers
    with store.locked(vmid):
        config = store.load(vmid)
        config.check_digest(call.get("digest"))
        config.check_lock()
        options.check_deletions(deleted, config)
        options.check_changes(given, config.options)
        changes.stage(config, options.normalise(given), deleted, reverted)
        errors = changes.apply(call.node, vmid, config, Task("", Path(os.devnull)).log)
        store.save(vmid, config)
    if errors:
        raise ApiError("Parameter verification failed.", 400, errors)
    for index, nic in container_nics.of_config(config.options).items():
        veths.check_bridge(index, nic)
