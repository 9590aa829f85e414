"""Where the project's own files lie, from wherever it was started."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ROOT / "lab" / "dasklab" / "experiments"
WORKLOADS = ROOT / "lab" / "dasklab" / "workloads"
PLAYBOOKS = ROOT / "playbooks"


def directory(override: str, xdg: str, default: str, name: str = "") -> Path:
    """``$override``, else ``$xdg/dasklab/name``, else ``~/default/dasklab/name``; always absolute."""
    if named := os.environ.get(override):
        return Path(named).absolute()
    base = os.environ.get(xdg) or Path.home() / default
    return (Path(base) / "dasklab" / name).absolute()


PATHS_OF_ENVIRONMENT = (
    "DASKLAB_STATE",
    "DASKLAB_CACHE",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "PROXMOX_CA_FILE",
)


def anchor_environment() -> None:
    """Make the paths of the environment absolute: what this process starts may run in another folder."""
    for name in PATHS_OF_ENVIRONMENT:
        if value := os.environ.get(name):
            os.environ[name] = str(Path(value).absolute())


def cache() -> Path:
    """What can be made or downloaded again, and is shared by all labs of a user."""
    return directory("DASKLAB_CACHE", "XDG_CACHE_HOME", ".cache")
