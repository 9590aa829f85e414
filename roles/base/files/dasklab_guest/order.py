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

import dasklab_guest
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
ROLES = {  # module: the role that installs it
    "capture": "capture",
    "cluster": "dask",
    "fault": "fault",
    "host": "guest",
    "link": "netem",
    "probe": "probe",
    "profile": "profile",
    "spark": "spark",
    "workload": "workload",
}


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
    except HostError as error:
        raise type(error)(f"phase {order['phase']}: {error}") from None
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
        HostError: there is no such step, or the role that brings it is not installed here.
    """
    name, _, action = step.partition(".")
    steps: dict[str, Callable[..., Any]] = getattr(module(name), "STEPS", {})
    if action not in steps:
        raise HostError(f"no step {step!r}; {name} has {', '.join(steps) or 'none'}")
    return steps[action]


def module(name: str) -> ModuleType:
    """Import a part of this package.

    Raises:
        HostError: it does not exist, or is not installed on this host.
    """
    if name not in ROLES:
        raise HostError(f"no part {name!r}; there are {', '.join(ROLES)}")
    try:
        return importlib.import_module(f"dasklab_guest.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"dasklab_guest.{name}":
            raise
        raise HostError(f"{name} is not installed on this host; apply role {ROLES[name]}") from None


def reset() -> list[str]:
    """Remove whatever a trial may have left on this host; every part has a chance, whatever another meets.

    Returns:
        The parts that were reset.

    Raises:
        HostError: parts could not be reset; all are named.
    """
    files = [path for folder in dasklab_guest.__path__ for path in Path(folder).glob("*.py")]
    installed = sorted({path.stem for path in files} & ROLES.keys())
    failures = []
    for name in installed:
        try:
            getattr(module(name), "reset", lambda: None)()
        except (HostError, OSError) as error:
            failures.append(f"{name}: {error}")
    os.sync()  # a change of the NIC model cuts the power
    if failures:
        raise HostError("could not reset " + "; ".join(failures))
    return installed


def clear_answers(directory: Path = TRIAL) -> None:
    """Forget the answers and files of an earlier trial."""
    shutil.rmtree(directory, ignore_errors=True)


def files(directory: Path = TRIAL) -> Document:
    """Return the folder of what the trial left for the controller, and the paths of its files within it."""
    paths = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    return {"folder": str(directory), "files": paths}
