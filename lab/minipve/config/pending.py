"""Pending changes of a configuration, and option values, in the form that the API returns."""

from __future__ import annotations

from collections.abc import Iterable

from minipve.base.errors import parameter_error
from minipve.config.rules import schema
from minipve.config.rules.kinds import LXC, QEMU, Kind
from minipve.config.store import GuestConfig, typed


def rows(config: GuestConfig) -> list[dict[str, object]]:
    """Return the rows of ``GET .../pending``: current value, pending value, deletion mark."""
    result: list[dict[str, object]] = []
    for key in sorted({*config.options, *config.pending}):
        row: dict[str, object] = {"key": key}
        if key in config.options:
            row["value"] = api_value(key, config.options[key], config.kind)
        if key in config.pending:
            row["pending"] = api_value(key, config.pending[key], config.kind)
        if key in config.deleted:
            row["delete"] = 1
        result.append(row)
    return [*result, {"key": "digest", "value": config.digest}]


def api_value(key: str, value: str, kind: Kind = QEMU) -> str | int:
    """Return an option's value as the API shows it: typed, with passwords hidden."""
    if key == "description" and kind is LXC:
        return value.removesuffix("\n") + "\n"
    return "**********" if key == "cipassword" else typed(key, value, kind)


def check_deletable(names: Iterable[str], kind: Kind = QEMU) -> None:
    """Raise 400 for a name that is not an option."""
    for name in names:
        check_exists(name, kind, "delete")


def check_exists(name: str, kind: Kind, parameter: str) -> None:
    """Raise 400 for ``parameter`` when ``name`` is not an option."""
    try:
        schema.option(name, kind)
    except KeyError:
        raise parameter_error(**{parameter: f"unknown option '{name}'"}) from None
