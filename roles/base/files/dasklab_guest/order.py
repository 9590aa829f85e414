"""Carry out an order: the steps that this host takes in one phase of a trial.

An order is one JSON document::

    {"version": 1, "phase": "prepare", "first": true,
     "steps": [{"do": "link.apply", "arguments": {"links": [...], "ttl_s": 600}}]}

The ``first`` order of a trial removes what an earlier trial left. ``do`` names a module of this package and
a function in its table ``STEPS``; ``arguments`` are the function's keyword arguments. The answers are kept in
``ANSWERS``, by phase and step, until the controller collects them. The first step that fails ends the
order.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
from pathlib import Path

from dasklab_guest.common import HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Document = dict[str, Any]

VERSION = 1
TRIAL = Path("/var/lib/dasklab/trial")  # what a trial leaves for the controller
ANSWERS = "answers.json"


def carry_out(order: Document, directory: Path = TRIAL) -> Document:
    """Carry out the steps of an order and keep their answers in ``directory``.

    Returns:
        The answers of this order, by step.

    Raises:
        HostError: the order is of another version, names an unknown step, or a step failed.
    """
    if order.get("version") != VERSION:
        version = order.get("version")
        raise HostError(
            f"this host carries out orders of version {VERSION}, not {version}; configure it again"
        )
    if order.get("first"):
        clear_answers(directory)
    answers: Document = {}
    try:
        for step in order["steps"]:
            answers[step["do"]] = function_of(step["do"])(**step.get("arguments", {}))
    finally:
        keep(directory, order["phase"], answers)
    return answers


def keep(directory: Path, phase: str, answers: Document) -> None:
    """Add the answers of a phase to those of the trial; the file is replaced as a whole."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / ANSWERS
    phases = json.loads(file.read_text()) if file.exists() else {}
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps({**phases, phase: answers}))
    temporary.replace(file)


def function_of(step: str) -> Callable[..., Any]:
    """Return the function of a step such as ``link.apply``.

    Raises:
        HostError: there is no such step.
    """
    name, _, action = step.partition(".")
    module = importlib.import_module(f"dasklab_guest.{name}") if name in module_names() else None
    steps: dict[str, Callable[..., Any]] = getattr(module, "STEPS", {})
    if action not in steps:
        allowed = f"{name} has {', '.join(steps)}" if steps else f"there are {', '.join(parts())}"
        raise HostError(f"no step {step!r}; {allowed}")
    return steps[action]


def parts() -> dict[str, ModuleType]:
    """Return the modules of this package that have steps, by name."""
    modules = {name: importlib.import_module(f"dasklab_guest.{name}") for name in module_names()}
    return {name: module for name, module in modules.items() if hasattr(module, "STEPS")}


def module_names() -> list[str]:
    """Return the names of all modules of this package, sorted."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def reset() -> list[str]:
    """Remove whatever a trial may have left on this host; every part has a chance, whatever another meets.

    Returns:
        The parts that were reset.

    Raises:
        HostError: parts could not be reset; all are named.
    """
    failures = []
    modules = parts()
    for name, part in modules.items():
        try:
            getattr(part, "reset", lambda: None)()
        except (HostError, OSError) as error:
            failures.append(f"{name}: {error}")
    os.sync()  # a change of the NIC model cuts the power
    if failures:
        raise HostError("could not reset " + "; ".join(failures))
    return list(modules)


def clear_answers(directory: Path = TRIAL) -> None:
    """Forget the answers and files of an earlier trial."""
    shutil.rmtree(directory, ignore_errors=True)


def files(directory: Path = TRIAL) -> Document:
    """Return the folder of what the trial left for the controller, and the paths of its files within it."""
    paths = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    return {"folder": str(directory), "files": paths}
