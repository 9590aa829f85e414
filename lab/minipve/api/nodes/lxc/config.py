"""A container's configuration: read, change (without a task), pending changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minipve.api.routing import CT, check_first, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import container_nics
from minipve.config import pending as waiting
from minipve.config.rules.formats import split_list
from minipve.config.rules.kinds import LXC
from minipve.guests.container import changes, options
from minipve.network import veths
from minipve.node.call import Call
from minipve.node.tasks import Task

_CONTROL = {"delete", "revert", "digest"}


@route("GET", f"{CT}/config")
def read(call: Call) -> dict[str, Any]:
    """Return the configuration of the next start, or with ``current`` the current one."""
    config = call.node.containers.load(call.vmid)
    if "snapshot" in call.params:
        raise ApiError(f"snapshot '{call['snapshot']}' does not exist")
    chosen = config.options if call.get("current") else config.merged()
    return {key: waiting.api_value(key, value, LXC) for key, value in chosen.items()} | {
        "digest": config.digest
    }


@route("GET", f"{CT}/pending")
def pending(call: Call) -> list[dict[str, Any]]:
    """Return current and pending values."""
    return waiting.rows(call.node.containers.load(call.vmid))


@check_first("PUT", f"{CT}/config")
def check_update(call: Call) -> None:
    """Raise the errors that PVE reports before it checks volumes and takes the lock."""
    deleted, reverted, new_options = _requested(call)
    if not new_options and not deleted and not reverted:
        raise ApiError("no options specified")
    config = call.node.containers.load(call.vmid)
    config.check_lock()
    config.check_digest(call.get("digest"))
    options.check(call.permit, call.vmid, None, {}, config.options, [*deleted, *reverted])
    for name in reverted:
        waiting.check_exists(name, LXC, "revert")
        if name in new_options:
            raise parameter_error(revert=f"you can't use '-{name}' and '-revert {name}' at the same time")
    for name in deleted:
        waiting.check_exists(name, LXC, "delete")
        if name in new_options:  # the missing quote is PVE's
            raise parameter_error(delete=f"you can't use '-{name}' and -delete {name}' at the same time")
        if name in reverted:
            text = f"you can't use '-delete {name}' and '-revert {name}' at the same time"
            raise parameter_error(delete=text)
    options.check(call.permit, call.vmid, None, new_options, config.options)


def _requested(call: Call) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the names to delete, the names to revert, and the options to set."""
    deleted, reverted = (split_list(call.get(name, "")) for name in ("delete", "revert"))
    return deleted, reverted, {k: str(v) for k, v in call.options.items() if k not in _CONTROL}


@route("PUT", f"{CT}/config")
def update(call: Call) -> None:
    """Change options. Waits for the container's lock and for hot-plugging."""
    deleted, reverted, new_options = _requested(call)
    options.refuse(new_options)
    vmid, store = call.vmid, call.node.containers
    with store.locked(vmid):
        config = store.load(vmid)
        config.check_digest(call.get("digest"))
        config.check_lock()
        options.check_deletions(deleted, config)
        options.check_changes(new_options, config.options)
        changes.stage(config, options.normalise(new_options), deleted, reverted)
        errors = changes.apply(call.node, vmid, config, Task("", Path(os.devnull)).log)
        store.save(vmid, config)
    if errors:
        raise ApiError("Parameter verification failed.", 400, errors)
    for index, nic in container_nics.of_config(config.options).items():
        veths.check_bridge(index, nic)
