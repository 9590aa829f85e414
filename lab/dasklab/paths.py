"""Where the project's files are: those that are installed with it, and those that it keeps for its user."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

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


PATHS_OF_ENVIRONMENT = (
    "MINIPVE_CACHE",
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


def ansible_settings(inventory: Path) -> dict[str, str]:
    """Return the environment in which Ansible finds its settings and the project's roles and plugins.

    Settings are those of the ``ansible.cfg`` beside the inventory's folder (`dasklab init` writes one), else
    the project's own.
    """
    own = inventory.parent.parent / "ansible.cfg"
    plugins = {kind: PLAYBOOKS / kind for kind in ("filter_plugins", "action_plugins", "callback_plugins")}
    folders = plugins | {"library": PLAYBOOKS / "library", "roles_path": ROLES}
    return {
        "ANSIBLE_CONFIG": str(own if own.exists() else SHARE / "ansible.cfg"),
        **{f"ANSIBLE_{name.upper()}": str(folder) for name, folder in folders.items()},
    }


def cache() -> Path:
    """Return the folder for what can be made or downloaded again; all labs of a user share it."""
    chosen = os.environ.get("DASKLAB_CACHE")
    return Path(chosen).absolute() if chosen else user_cache_path("dasklab")
