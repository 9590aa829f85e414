"""The plugins of playbooks and roles are no package: each is loaded from its own file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from dasklab.paths import ROLES
from dasklab.paths import SHARE as ROOT

sys.path.append(str(ROLES / "base" / "files"))


def load(path: str) -> ModuleType:
    """Return the module in a file of the project."""
    file = ROOT / path
    name = f"plugin_{file.stem}"  # the callback dasklab must not hide the package dasklab
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def trial() -> ModuleType:
    return load("playbooks/filter_plugins/trial.py")


@pytest.fixture(scope="session")
def interfaces() -> ModuleType:
    return load("roles/proxmox_bridge/filter_plugins/interfaces.py")


@pytest.fixture(scope="session")
def dasklab_file() -> Callable[[str], str]:
    function: Callable[[str], str] = load("roles/base/filter_plugins/dasklab_file.py").dasklab_file
    return function
