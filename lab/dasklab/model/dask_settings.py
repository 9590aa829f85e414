"""Dask's own settings as an experiment gives them: a mapping as in Dask's YAML files, of known keys.

Known is what the default files of the installed Dask name; below a key whose default is empty anything goes.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

DEFAULTS = (("dask", "dask.yaml"), ("distributed", "distributed.yaml"))


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``distributed.comm.compression`` and its value for each setting of a nested mapping."""
    for key, value in settings.items():
        name = f"{prefix}{key}".replace("_", "-")
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        else:
            yield name, value


def mistake(settings: Mapping[str, Any]) -> str | None:
    """What is wrong with the first setting that cannot be, in words; None if all can."""
    for name, value in flat(settings):
        if isinstance(value, float) and not math.isfinite(value):
            return f'{name}: {value} is no number that a file can hold; write "{value}"'
        if name.endswith(".preload"):
            return f"{name}: it would take the place of the lab's own; the inventory's dask_config adds to it"
        if name not in known() and not any(name.startswith(f"{free}.") for free in _free()):
            near = difflib.get_close_matches(name, known(), n=3)
            hint = f"; near: {', '.join(near)}" if near else ""
            return f"Dask has no setting {name}{hint}"
    return None


@cache
def known() -> Mapping[str, Any]:
    """Each setting of the default files, with its default."""
    found: dict[str, Any] = {}
    for package, file in DEFAULTS:
        spec = find_spec(package)
        if spec is not None and spec.origin:
            text = Path(spec.origin).with_name(file).read_text()
            found.update(flat(yaml.safe_load(text)))
    return found


@cache
def _free() -> tuple[str, ...]:
    """Settings that are empty by default and may hold anything."""
    return tuple(name for name, default in known().items() if default in ({}, None))
