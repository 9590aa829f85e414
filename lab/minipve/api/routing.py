"""The table of handlers: each has an HTTP verb, a path as in PVE's API viewer, and a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from minipve import api
from minipve.config.rules.schema import LXC, QEMU
from minipve.node.call import Call

Handler = Callable[[Call], Any]
VM, CT = QEMU.path, LXC.path
_WITH_SLASHES = ("{volume}", "{cidr}")  # placeholders at the end of a path whose value may contain slashes
_ANY, _VERBS = "/*", "/"  # keys of the tree; segments of a path contain no slash
_HANDLERS: dict[tuple[str, str], Handler] = {}
_CHECKS: dict[tuple[str, str], Callable[[Call], None]] = {}


def route(verb: str, path: str) -> Callable[[Handler], Handler]:
    """Declare a function as the handler of ``verb`` on ``path``."""

    def declare(function: Handler) -> Handler:
        _HANDLERS[verb, path] = function
        return function

    return declare


def check_first(verb: str, path: str) -> Callable[[Callable[[Call], None]], Callable[[Call], None]]:
    """Declare checks of a call that PVE performs before it checks the call's volumes."""

    def declare(function: Callable[[Call], None]) -> Callable[[Call], None]:
        _CHECKS[verb, path] = function
        return function

    return declare


def checks() -> dict[tuple[str, str], Callable[[Call], None]]:
    """Return (verb, path) -> function, as declared by ``check_first``."""
    load()
    return _CHECKS


@cache
def load() -> dict[tuple[str, str], Handler]:
    """Import all modules of this package, and return (verb, path) -> handler."""
    for module in walk_packages(api.__path__, f"{api.__name__}."):
        import_module(module.name)
    return dict(_HANDLERS)


@cache
def _tree() -> dict[str, Any]:
    """Return the path segments as a tree, with ``_ANY`` for placeholders and ``_VERBS`` at the ends."""
    root: dict[str, Any] = {}
    for verb, path in load():
        branch = root
        for segment in path.strip("/").split("/"):
            branch = branch.setdefault(_ANY if segment.startswith("{") else segment, {})
        branch.setdefault(_VERBS, {})[verb] = path
    return root


def children(path: str) -> list[str]:
    """Return the names directly below a path template, for an index."""
    prefix = path.rstrip("/") + "/"
    below = (other.removeprefix(prefix) for _, other in load() if other.startswith(prefix))
    return sorted({name.partition("/")[0] for name in below if not name.startswith("{")})


def find(verb: str, path: str) -> tuple[str, dict[str, str]] | None:
    """Return the path template for ``verb`` on ``path``, and the values of its placeholders."""
    branch, values = _tree(), []
    segments = [segment for segment in path.split("/") if segment]
    for position, segment in enumerate(segments):
        if segment in branch:
            branch = branch[segment]
        elif _ANY in branch:
            branch = branch[_ANY]
            if branch.get(_VERBS, {}).get(verb, "").endswith(_WITH_SLASHES):
                values.append("/".join(segments[position:]))
                break
            values.append(segment)
        else:
            return None
    template: str | None = branch.get(_VERBS, {}).get(verb)
    if template is None:
        return None
    names = [part[1:-1] for part in template.split("/") if part.startswith("{")]
    return template, dict(zip(names, values, strict=True))
