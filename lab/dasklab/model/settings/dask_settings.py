"""Dask's own settings in an experiment: a mapping with the keys of Dask's YAML files.

A key must be one that the default files of the installed Dask name. Below a key whose default is empty, any
key is valid.
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

DEFAULT_FILES = (("dask", "dask.yaml"), ("distributed", "distributed.yaml"))


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name, such as ``distributed.comm.compression``, and the value of each setting."""
    for key, value in settings.items():
        name = f"{prefix}{key}".replace("_", "-")
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def find_mistake(settings: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the first invalid setting; None if all are valid."""
    for name, value in flatten(settings):
        if isinstance(value, float) and not math.isfinite(value):
            return f'{name}: JSON has no number {value}; write "{value}"'
        if name.endswith(".preload"):
            return f"{name}: it would replace a variant's preload; set dask_config in the inventory instead"
        if name not in defaults() and not any(name.startswith(f"{free}.") for free in _free_names()):
            near = difflib.get_close_matches(name, defaults(), n=3)
            hint = f"; close to it: {', '.join(near)}" if near else ""
            return f"Dask has no setting {name}{hint}"
    return None


@cache
def defaults() -> Mapping[str, Any]:
    """Return each setting of Dask's default files with its default value."""
    settings: dict[str, Any] = {}
    for package, file in DEFAULT_FILES:
        spec = find_spec(package)
        if spec is not None and spec.origin:
            text = Path(spec.origin).with_name(file).read_text(encoding="utf-8")
            settings.update(flatten(yaml.safe_load(text)))
    return settings


@cache
def _free_names() -> tuple[str, ...]:
    """Return the settings that are empty by default: below them any key is valid."""
    return tuple(name for name, default in defaults().items() if default in ({}, None))
