"""Every part of the program: its steps can be ordered, and it runs with Python's standard library."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
from dasklab.paths import ROLES
from dasklab_guest import order


@pytest.mark.parametrize("name", order.ROLES)
def test_part_lies_in_its_role_and_has_steps(name: str) -> None:
    assert (ROLES / order.ROLES[name] / "files" / "dasklab_guest" / f"{name}.py").exists()
    module = importlib.import_module(f"dasklab_guest.{name}")
    assert module.STEPS
    assert all(inspect.isfunction(function) for function in module.STEPS.values())


@pytest.mark.parametrize("name", order.ROLES)
def test_part_needs_only_the_standard_library_and_few_imports(name: str) -> None:
    """Each import costs an emulated guest tens of milliseconds; ``typing`` is for mypy alone."""
    paths = [str(path) for path in ROLES.glob("*/files")]
    script = f"import sys; sys.path += {paths!r}; import dasklab_guest.{name}; print(*sys.modules)"
    argv = [sys.executable, "-SsE", "-c", script]
    modules = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert f"dasklab_guest.{name}" in modules
    assert "typing" not in modules
    assert {module.partition(".")[0] for module in modules} <= {
        *sys.stdlib_module_names,
        "dasklab_guest",
        "__main__",
    }
