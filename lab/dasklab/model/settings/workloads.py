"""The Python files that trials run: dasklab's own, and those that lie beside an experiment's file."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from dasklab.errors import LabError, did_you_mean
from dasklab.paths import WORKLOADS


@cache
def built_in() -> tuple[str, ...]:
    """Return the names of the workloads that come with dasklab."""
    return tuple(sorted(path.stem for path in WORKLOADS.glob("[!_]*.py")))


def read_sources(names: Iterable[str], folder: Path) -> dict[str, str]:
    """Return the source of each of these workloads that does not come with dasklab.

    Args:
        names: workloads of an experiment.
        folder: where the experiment's file is.

    Raises:
        LabError: there is no such workload, its file cannot be read or has the name of one of dasklab's.
    """
    sources: dict[str, str] = {}
    for name in names:
        file = folder / f"{name}.py"
        is_own = name.isidentifier() and file.is_file()
        if is_own and name in built_in():
            raise LabError(f"{file.name} has the name of a workload that comes with dasklab; rename the file")
        if is_own:
            sources[name] = _read(file)
        elif name not in built_in():
            hint = did_you_mean(name, [*built_in(), *(path.stem for path in folder.glob("*.py"))])
            neither = f"no workload {name!r}, and no {name}.py beside the file"
            raise LabError(f"{neither}; allowed: {', '.join(built_in())}{hint}")
    return sources


def _read(file: Path) -> str:
    try:
        return with_prepare(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"{file.name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LabError(f"{file.name} is not UTF-8") from None
    except ValueError as error:
        raise LabError(f"{file.name}: {error}") from None


def find_mistake(name: str, params: Iterable[str], source: str | None) -> str | None:
    """Return what is wrong with a workload: its name or a parameter; None if it can be run.

    Args:
        name: the workload's name.
        params: names of the parameters that an experiment sets.
        source: the workload's source, unless it comes with dasklab.
    """
    if source is None and name not in built_in():
        return f"no workload {name!r}; allowed: {', '.join(built_in())}{did_you_mean(name, built_in())}"
    allowed = parameters(source or (WORKLOADS / f"{name}.py").read_text(encoding="utf-8"))
    for key in params:
        if key not in allowed:
            names = f"{', '.join(allowed) or 'none'}{did_you_mean(key, allowed)}"
            return f"{name} has no parameter {key!r}; allowed: {names}"
    return None


@cache
def parameters(source: str) -> tuple[str, ...]:
    """Return the parameters of a workload: those of its ``prepare``, which is not imported (Dask would be).

    Raises:
        ValueError: this is not Python, or there is no ``prepare``.
    """
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "prepare":
            return tuple(argument.arg for argument in [*node.args.args, *node.args.kwonlyargs][1:])
    raise ValueError("it has no function prepare(client, ...)")


def with_prepare(source: str) -> str:
    """Return the source of a workload, unchanged.

    Raises:
        ValueError: this is no workload.
    """
    parameters(source)
    return source


Source = Annotated[str, AfterValidator(with_prepare)]
"""The Python source of a workload."""
