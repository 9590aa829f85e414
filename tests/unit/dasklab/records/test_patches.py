"""Attributes and handlers that a recorder replaces are put back exactly."""

from __future__ import annotations

from types import SimpleNamespace

import distributed
from dasklab.records.recorder.base import describe
from dasklab.records.recorder.patches import replace, replace_item, share


class Base:
    value = "inherited"


def test_an_inherited_attribute_is_inherited_again() -> None:
    target = Base()
    undo = replace(target, "value", "new")
    assert target.value == "new"
    undo()
    assert vars(target) == {} and target.value == "inherited"


def test_an_own_attribute_comes_back() -> None:
    target = SimpleNamespace(value="mine")
    replace(target, "value", "new")()
    assert target.value == "mine"


def test_what_was_replaced_meanwhile_stays() -> None:
    target, handlers = SimpleNamespace(value="mine"), {"value": "mine"}
    undo, undo_item = replace(target, "value", "new"), replace_item(handlers, "value", "new")
    target.value = handlers["value"] = "another's"
    undo()
    undo_item()
    assert target.value == handlers["value"] == "another's"


def test_a_handler_comes_back_or_goes() -> None:
    handlers = {"get_data": "mine"}
    for name in ("get_data", "take"):
        replace_item(handlers, name, "new")()
    assert handlers == {"get_data": "mine"}


def test_a_shared_table_goes_with_its_last_entry() -> None:
    uninstalled = []
    leave = [
        share("_dasklab_test", key, key, lambda table: lambda: uninstalled.append(dict(table)))
        for key in (1, 2)
    ]
    leave[0]()
    assert vars(distributed)["_dasklab_test"][0] == {2: 2} and not uninstalled
    leave[1]()
    assert not hasattr(distributed, "_dasklab_test") and uninstalled == [{}]


def test_an_error_is_described_without_its_methods() -> None:
    class HostileError(Exception):
        def __repr__(self) -> str:
            raise ValueError

        __str__ = __repr__

    assert describe(HostileError("text", 1, object())) == "HostileError(text, 1)"
