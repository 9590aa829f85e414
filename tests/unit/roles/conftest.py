"""The scripts and plugins of roles/ are no package: each is loaded from its own file."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
from dasklab.paths import SHARE as ROOT


def load(path: str) -> ModuleType:
    """The module in a file of the project; what lies beside it can be imported by it."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # the commands import each other by these names
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def common() -> ModuleType:
    return load("roles/base/files/dasklab_common.py")


@pytest.fixture(scope="session")
def host(common: ModuleType) -> ModuleType:
    return load("roles/guest/files/dasklab_host.py")


@pytest.fixture(scope="session")
def link(common: ModuleType) -> ModuleType:
    load("roles/netem/files/dasklab_impairments.py")
    return load("roles/netem/files/dasklab_link.py")


@pytest.fixture(scope="session")
def capture(common: ModuleType) -> ModuleType:
    return load("roles/capture/files/dasklab_capture.py")


@pytest.fixture(scope="session")
def fault(common: ModuleType) -> ModuleType:
    return load("roles/fault/files/dasklab_fault.py")


@pytest.fixture(scope="session")
def profile(common: ModuleType) -> ModuleType:
    return load("roles/profile/files/dasklab_profile.py")


@pytest.fixture(scope="session")
def probe(common: ModuleType) -> ModuleType:
    return load("roles/probe/files/dasklab_probe.py")


@pytest.fixture(scope="session")
def trial() -> ModuleType:
    return load("playbooks/filter_plugins/trial.py")


@pytest.fixture(scope="session")
def interfaces() -> ModuleType:
    return load("roles/proxmox_bridge/filter_plugins/interfaces.py")


@pytest.fixture(scope="session")
def lab_files() -> ModuleType:
    return load("playbooks/action_plugins/lab_files.py")


@pytest.fixture(scope="session")
def lab_command() -> ModuleType:
    return load("playbooks/action_plugins/lab_command.py")


@pytest.fixture(scope="session")
def roles() -> ModuleType:
    return load("playbooks/filter_plugins/roles.py")
