"""The handlers, one module an area: each is a verb, a path as in PVE's API viewer, and a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from minipve.config.kinds import LXC, QEMU
from minipve.node import Call

Handler = Callable[[Call], Any]
MODULES = (
    "absent", "access", "agent", "cluster", "firewall", "lxc", "lxc_config", "lxc_status", "monitor",
    "network", "nodes", "pools", "qemu", "qemu_config", "rrd", "sdn", "sdn_running", "snapshots", "status",
    "storage", "tasks", "tokens",
)  # fmt: skip
VM, CT = QEMU.path, LXC.path
_ANY, _HERE = "/*", "/"  # no segment of a path has a slash
_HANDLERS: dict[tuple[str, str], Handler] = {}
_CHECKS: dict[tuple[str, str], Callable[[Call], None]] = {}


def route(verb: str, path: str) -> Callable[[Handler], Handler]:
    """Declare a function as the handler of ``verb`` on ``path``."""

    def declare(function: Handler) -> Handler:
        _HANDLERS[verb, path] = function
        return function

    return declare


def check_first(verb: str, path: str) -> Callable[[Callable[[Call], None]], Callable[[Call], None]]:
    """Declare what PVE checks of a call before it looks at the volumes that the call names."""

    def declare(function: Callable[[Call], None]) -> Callable[[Call], None]:
        _CHECKS[verb, path] = function
        return function

    return declare


def checks() -> dict[tuple[str, str], Callable[[Call], None]]:
    """(verb, path) -> what was declared by ``check_first``."""
    load()
    return _CHECKS


@cache
def load() -> dict[tuple[str, str], Handler]:
    """(verb, path) -> handler, for all modules."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
    return dict(_HANDLERS)


@cache
def _tree() -> dict[str, Any]:
    """Segments of paths; below ``_ANY`` what a place takes, below ``_HERE`` verbs with their template."""
    root: dict[str, Any] = {}
    for verb, path in load():
        branch = root
        for segment in path.strip("/").split("/"):
            branch = branch.setdefault(_ANY if segment.startswith("{") else segment, {})
        branch.setdefault(_HERE, {})[verb] = path
    return root


def find(verb: str, path: str) -> tuple[str, dict[str, str]] | None:
    """The path template that serves ``verb`` on ``path``, and what its places hold."""
    branch, values = _tree(), []
    segments = [segment for segment in path.split("/") if segment]
    for position, segment in enumerate(segments):
        if segment in branch:
            branch = branch[segment]
        elif _ANY in branch:
            branch = branch[_ANY]
            if verb in branch.get(_HERE, {}) and branch[_HERE][verb].endswith("{volume}"):
                values.append("/".join(segments[position:]))  # a volume id has slashes of its own
                break
            values.append(segment)
        else:
            return None
    template: str | None = branch.get(_HERE, {}).get(verb)
    if template is None:
        return None
    names = [part[1:-1] for part in template.split("/") if part.startswith("{")]
    return template, dict(zip(names, values, strict=True))
