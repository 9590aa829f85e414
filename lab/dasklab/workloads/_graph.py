"""Tasks of a raw graph in any version of Dask: objects, in older ones tuples."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

spec: Any
try:
    from dask import _task_spec as spec
except ImportError:
    spec = None


def task(key: str, function: Callable[..., Any], *args: Any) -> Any:
    """What a graph has for ``key``: a call of ``function``."""
    return spec.Task(key, function, *args) if spec else (function, *args)


def ref(key: str) -> Any:
    """Another task's result, as an argument."""
    return spec.TaskRef(key) if spec else key


def refs(keys: Iterable[str]) -> Any:
    """A list of other tasks' results, as an argument."""
    return spec.List(*map(ref, keys)) if spec else list(keys)
