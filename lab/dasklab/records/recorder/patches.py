"""Replace attributes and handlers of Dask's objects, and put back exactly what was there."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import distributed

MISSING = object()
Undo = Callable[[], None]


def replace(target: Any, name: str, value: Any) -> Undo:
    """Set an attribute of an object, module or class; return how to undo that.

    An attribute that somebody else has replaced meanwhile stays as it is. An attribute that the target only
    inherits is inherited again.
    """
    before = vars(target).get(name, MISSING)
    setattr(target, name, value)

    def undo() -> None:
        if vars(target).get(name, MISSING) is not value:
            return
        if before is MISSING:
            delattr(target, name)
        else:
            setattr(target, name, before)

    return undo


def replace_item(target: MutableMapping[str, Any], name: str, value: Any) -> Undo:
    """Set an item of a table of handlers; return how to undo that, as ``replace`` does."""
    before = target.get(name, MISSING)
    target[name] = value

    def undo() -> None:
        if target.get(name, MISSING) is not value:
            return
        if before is MISSING:
            del target[name]
        else:
            target[name] = before

    return undo


def share(name: str, key: Any, value: Any, install: Callable[[dict[Any, Any]], Undo]) -> Undo:
    """Put an entry into a table that all recorders of this process share; return how to remove it.

    The first entry calls ``install`` with the table. When the last one is removed, what ``install`` returned
    is called, and the table is gone, too. The table is found in ``distributed``, because each recorder comes
    with modules of its own.
    """
    if name not in vars(distributed):
        table: dict[Any, Any] = {}
        setattr(distributed, name, (table, install(table)))
    shared = vars(distributed)[name]
    shared[0][key] = value

    def leave() -> None:
        table, uninstall = shared
        table.pop(key, None)
        if not table and vars(distributed).get(name) is shared:
            delattr(distributed, name)
            uninstall()

    return leave
