"""Dask as wheels, downloaded once: guests install from them, and need no network."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from lab.minipve.image import work
from lab.minipve.paths import Paths
from lab.minipve.progress import silent

REQUIREMENTS = Path(__file__).parents[3] / "roles" / "dask" / "files" / "requirements.txt"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 27, 24, 17, 12, 5)]


def house(paths: Paths) -> Path:
    """Where the wheels of the present pins are or will be."""
    return paths.wheels / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]


def fetch(paths: Paths) -> Path:
    """The wheelhouse of the present pins, downloaded by pip unless it is there already."""
    there = house(paths)
    if there.exists():
        return there
    paths.wheels.mkdir(parents=True, exist_ok=True)
    with work.scratch_directory(paths.wheels) as scratch:
        work.run_logged([sys.executable, *pip_words(scratch / "new")], scratch / "pip.log", silent)
        shutil.copy(REQUIREMENTS, scratch / "new" / "requirements.txt")
        (scratch / "new").rename(there)
    return there


def pip_words(directory: Path) -> list[str]:
    """pip's arguments to download what Debian 12's Python 3.11 will install, whatever runs here (pure)."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    quiet = ["--quiet", "--disable-pip-version-check"]
    python = ["--python-version", "3.11", "--implementation", "cp", *platforms]
    chosen = [
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(directory),
        "--requirement",
        str(REQUIREMENTS),
    ]
    return ["-m", "pip", "download", *quiet, *python, *chosen]
