"""Dask as wheels, downloaded once: guests install from them, and need no network."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from minipve.image import work
from minipve.paths import Paths
from minipve.progress import silent

REQUIREMENTS = Path(__file__).parents[3] / "roles" / "dask" / "files" / "requirements.txt"


def house(paths: Paths) -> Path:
    """Where the wheels of the present pins are or will be."""
    return paths.wheels / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]


def fetch(paths: Paths) -> Path:
    """The wheelhouse of the present pins, downloaded by pip unless it is there already."""
    there = house(paths)
    if there.exists():
        return there
    from dasklab.wheels import pip_words  # it knows the trials' packages, which an endpoint starts without

    paths.wheels.mkdir(parents=True, exist_ok=True)
    with work.scratch_directory(paths.wheels) as scratch:
        chosen = ["--no-deps", "--dest", str(scratch / "new"), "--requirement", str(REQUIREMENTS)]
        words = [sys.executable, *pip_words("download", *chosen)]
        work.run_logged(words, scratch / "pip.log", silent)
        shutil.copy(REQUIREMENTS, scratch / "new" / "requirements.txt")
        (scratch / "new").rename(there)
    return there
