"""Every part of the program: its steps can be ordered, and it runs with Python's standard library."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from dasklab.paths import ROLES
from dasklab_guest import __main__ as main
from dasklab_guest import order

PROGRAM = str(ROLES / "base" / "files")


@pytest.mark.parametrize("name", order.parts())
def test_steps_are_functions(name: str) -> None:
    assert all(inspect.isfunction(function) for function in order.parts()[name].STEPS.values())


def test_help_names_every_part() -> None:
    assert {name for name in order.parts() if name not in str(main.__doc__)} == set()


@pytest.mark.parametrize("name", order.parts())
def test_part_needs_only_the_standard_library_and_few_imports(name: str) -> None:
    """Each import costs an emulated guest tens of milliseconds; ``typing`` is for mypy alone."""
    script = f"import sys; sys.path.append({PROGRAM!r}); import dasklab_guest.{name}; print(*sys.modules)"
    argv = [sys.executable, "-SsE", "-c", script]
    modules = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert f"dasklab_guest.{name}" in modules
    assert "typing" not in modules
    assert {module.partition(".")[0] for module in modules} <= {
        *sys.stdlib_module_names,
        "dasklab_guest",
        "__main__",
    }
