"""A container's configuration: read, change (always at once), what is pending."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lab.minipve import guests
from lab.minipve.api import CT, route
from lab.minipve.config import pending as waiting
from lab.minipve.config.formats import split_list
from lab.minipve.config.kinds import LXC
from lab.minipve.ct import changes, options
from lab.minipve.errors import ApiError
from lab.minipve.node import Call
from lab.minipve.tasks import Task

_CONTROL = {"delete", "revert", "digest"}


@route("GET", f"{CT}/config")
def read(call: Call) -> dict[str, Any]:
    """The configuration as it will be after the next start; with ``current`` as it is now."""
    config = call.node.containers.load(call.vmid)
    if "snapshot" in call.given:
        raise ApiError(f"snapshot '{call['snapshot']}' does not exist")
    chosen = config.options if call.get("current") else config.merged()
    return {key: waiting.shown(key, value, LXC) for key, value in chosen.items()} | {"digest": config.digest}


@route("GET", f"{CT}/pending")
def pending(call: Call) -> list[dict[str, Any]]:
    """Current and pending values side by side."""
    return waiting.rows(call.node.containers.load(call.vmid))


@route("PUT", f"{CT}/config")
def update(call: Call) -> None:
    """Change options; waits for the container's lock, and for the container."""
    deleted, reverted = (split_list(call.get(name, "")) for name in ("delete", "revert"))
    given = {key: str(value) for key, value in call.options.items() if key not in _CONTROL}
    _check(call, given, deleted, reverted)
    vmid, store = call.vmid, call.node.containers
    with store.locked(vmid):
        config = store.load(vmid)
        config.check_digest(call.get("digest"))
        config.check_lock()
        if "rootfs" in given:
            options.check_same_rootfs(given["rootfs"], config.options)
        changes.stage(config, options.normalise(given), deleted, reverted)
        errors = changes.apply(call.node, vmid, config, Task("", Path(os.devnull)).log)
        store.save(vmid, config)
    if errors:
        raise ApiError("Parameter verification failed.", 400, errors)


def _check(call: Call, given: dict[str, str], deleted: list[str], reverted: list[str]) -> None:
    """Everything that is refused before the lock is taken."""
    if not given and not deleted and not reverted:
        raise ApiError("no options specified")
    for names in (deleted, reverted):
        waiting.check_deletable(names, LXC)
    for name in set(given) & set(deleted):
        text = f"Cannot use '-{name}' and '-delete {name}' at the same time"
        raise ApiError("Parameter verification failed.", 400, {"delete": text})
    options.check_deletions(deleted)
    if "unprivileged" in given:
        raise ApiError("unable to modify read-only option: 'unprivileged'")
    now = call.node.containers.load(call.vmid).options
    options.check(call.permit, call.vmid, None, dict.fromkeys([*deleted, *reverted], "") | given, now)
    if "tags" in {*given, *deleted}:
        guests.check_tags(call.permit, call.vmid)
