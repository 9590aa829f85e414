"""Download the Python packages of the guests' image as wheels, so that guests need no network."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from minipve.base.paths import Paths
from minipve.base.progress import silent
from minipve.image import build_tools

PYTHON = "3.11"  # the version in the guests' Debian
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 27, 24, 17, 12, 5)]


def directory(requirements: Path, cache: Path) -> Path:
    """The folder of the wheels for a requirements file, whether it exists or not."""
    return cache / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]


def fetch(paths: Paths) -> Path | None:
    """Return the folder with the wheels for ``paths.requirements``, downloaded if need be.

    None stands for no packages.
    """
    if paths.requirements is None:
        return None
    target = directory(paths.requirements, paths.wheels)
    if target.exists():
        return target
    paths.wheels.mkdir(parents=True, exist_ok=True)
    with build_tools.scratch_directory(paths.wheels) as scratch:
        build_tools.run_logged(_download(paths.requirements, scratch / "new"), scratch / "pip.log", silent)
        shutil.copy(paths.requirements, scratch / "new" / "requirements.txt")
        (scratch / "new").rename(target)
    return target


def _download(requirements: Path, target: Path) -> list[str]:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    target_system = ["--python-version", PYTHON, "--implementation", "cp", *platforms, "--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    return [*pip, *target_system, "--dest", str(target), "--requirement", str(requirements)]
