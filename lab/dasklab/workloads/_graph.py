"""Tasks of a raw graph for any version of Dask: objects in newer ones, tuples in older ones."""

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
    """Return the graph's entry for ``key``: a call of ``function``."""
    return spec.Task(key, function, *args) if spec else (function, *args)


def ref(key: str) -> Any:
    """Return a reference to another task's result, to use as an argument."""
    return spec.TaskRef(key) if spec else key


def refs(keys: Iterable[str]) -> Any:
    """Return a list of references to other tasks' results, to use as an argument."""
    return spec.List(*map(ref, keys)) if spec else list(keys)
