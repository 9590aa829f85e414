"""The execution environment can be built: ansible-builder accepts it, and its image has this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dasklab.paths import SHARE as ROOT
from packaging.requirements import Requirement

FILE = ROOT / "execution-environment.yml"
VERSION = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
WHEEL = f"dasklab-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``ansible-builder create`` writes; collection and wheel are empty files."""
    folder = tmp_path_factory.mktemp("environment")
    shutil.copy(FILE, folder)
    for file in (f"build/dasklab-lab-{VERSION}.tar.gz", f"dist/{WHEEL}"):
        (folder / file).parent.mkdir()
        (folder / file).touch()
    program = Path(sys.executable).with_name("ansible-builder")
    argv = [program, "create", "--output-filename", "Containerfile"]
    process = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder / "context"


def test_package_manager_and_python_are_those_of_the_base_image(context: Path) -> None:
    lines = (context / "Containerfile").read_text().splitlines()
    assert 'ARG EE_BASE_IMAGE="docker.io/library/python:3.11-slim-bookworm"' in lines
    assert 'ARG PKGMGR="/usr/bin/apt-get"' in lines, "the default is dnf"
    assert 'ARG PYCMD="/usr/local/bin/python3"' in lines, "the default is a Python that the image lacks"


def test_package_is_the_project_s_own_wheel(context: Path) -> None:
    """In every stage: the one that resolves requirements and the final one install from it."""
    requirement = Requirement((context / "_build" / "requirements.txt").read_text().strip())
    assert (requirement.name, requirement.extras) == ("dasklab", {"lab"})
    assert requirement.url == f"file:///opt/wheels/{WHEEL}"
    assert (context / "_build" / "wheels" / WHEEL).exists()
    base = (context / "Containerfile").read_text().partition("# Base build stage")[2].partition("\nFROM")[2]
    stage = base.partition("\nFROM")[0]
    assert "COPY _build/wheels /opt/wheels" in stage and "RUN apt-get update" in stage
    assert "FROM base AS builder" in base and "FROM base AS final" in base
