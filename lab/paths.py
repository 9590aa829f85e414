"""Where the project's own files lie, from wherever it was started."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ROOT / "lab" / "experiments"
WORKLOADS = ROOT / "lab" / "workloads"
PLAYBOOKS = ROOT / "playbooks"


def directory(override: str, xdg: str, default: str, name: str = "") -> Path:
    """``$override``, else ``$xdg/dasklab/name``, else ``~/default/dasklab/name``; always absolute."""
    if named := os.environ.get(override):
        return Path(named).absolute()
    base = os.environ.get(xdg) or Path.home() / default
    return (Path(base) / "dasklab" / name).absolute()


def cache() -> Path:
    """What can be made or downloaded again, and is shared by all labs of a user."""
    return directory("DASKLAB_CACHE", "XDG_CACHE_HOME", ".cache")
