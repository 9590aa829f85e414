"""Paths of the files that are installed with the project, and of those it keeps for the user."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "share"  # in a wheel; a checkout has the same folders at its top
IS_CHECKOUT = not _INSTALLED.is_dir()
SHARE = _PACKAGE.parents[1] if IS_CHECKOUT else _INSTALLED
"""The folder with ``ansible.cfg``, ``inventory/``, ``playbooks/`` and ``roles/``."""

PLAYBOOKS = SHARE / "playbooks"
ROLES = SHARE / "roles"
INVENTORIES = SHARE / "inventory"
EXPERIMENTS = _PACKAGE / "experiments"
WORKLOADS = _PACKAGE / "workloads"

PATH_VARIABLES = (
    "MINIPVE_CACHE",
    "DASKLAB_STATE",
    "DASKLAB_CACHE",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "PROXMOX_CA_FILE",
    "ANSIBLE_VAULT_PASSWORD_FILE",
)


def make_environment_absolute() -> None:
    """Make the paths in environment variables absolute, because child processes may run in another folder."""
    for name in PATH_VARIABLES:
        if value := os.environ.get(name):
            os.environ[name] = str(Path(value).expanduser().absolute())


def ansible_settings(inventory: Path) -> dict[str, str]:
    """Return environment variables that point Ansible to its settings and to the project's roles and plugins.

    The settings come from the ``ansible.cfg`` next to the inventory's folder (`dasklab init` writes one), or
    else from the project's own.
    """
    lab_settings = inventory.parent.parent / "ansible.cfg"
    kinds = ("filter_plugins", "callback_plugins", "strategy_plugins")
    folders = {"roles_path": ROLES, **{kind: PLAYBOOKS / kind for kind in kinds}}
    return {
        "ANSIBLE_CONFIG": str(lab_settings if lab_settings.exists() else SHARE / "ansible.cfg"),
        **{f"ANSIBLE_{name.upper()}": str(folder) for name, folder in folders.items()},
    }


def cache() -> Path:
    """Return the folder for files that can be rebuilt or downloaded again. All labs of a user share it."""
    configured = os.environ.get("DASKLAB_CACHE")
    return Path(configured).absolute() if configured else user_cache_path("dasklab")


def results() -> Path:
    """Return the folder of all runs.

    It is ``results`` in a lab's folder, and in any other folder that has one already. Elsewhere it is one
    folder per user, so that no run ends up in a folder by chance.
    """
    if configured := os.environ.get("DASKLAB_RESULTS"):
        return Path(configured)
    is_local = Path("inventory/hosts.yml").exists() or Path("results").is_dir()
    return Path("results") if is_local else user_data_path("dasklab") / "results"


def display_path(path: Path) -> str:
    """Return a path as a message names it: relative if it is below the working folder."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # elsewhere, or the working folder is gone
        return str(path)
