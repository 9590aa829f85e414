"""The state folder of an instance, with a marker file that protects other folders from removal.

``MINIPVE_STATE`` may name the wrong folder by mistake: a home, a link, another program's data. Therefore only
new or empty folders get the marker, and minipve writes to and removes only folders with the marker.
"""

from __future__ import annotations

import os
from pathlib import Path

from minipve.base import process
from minipve.base.paths import Paths
from minipve.base.user_error import UserError

MARK = ".minipve"
_MARK_TEXT = "minipve created this folder; `minipve stop --purge` removes all of it\n"


def claim(paths: Paths) -> None:
    """Create the state folder, private and marked. Raises UserError for somebody else's folder."""
    state = paths.state
    try:
        state.mkdir(parents=True, exist_ok=True)
        if foreign := _foreign_path(state):
            raise UserError(
                f"{foreign} belongs to another user (uid {foreign.lstat().st_uid})",
                "run this as that user, or set MINIPVE_STATE to a folder of your own",
            )
        if not (state / MARK).exists() and any(state.iterdir()):
            raise UserError(
                f"{state} is not empty and was not created by minipve",
                f"set MINIPVE_STATE to another folder; if it does belong to minipve: touch {state / MARK}",
            )
        (state / MARK).write_text(_MARK_TEXT)
        state.chmod(0o700)
    except OSError as error:
        raise UserError(f"state folder {state}: {error.strerror}") from error


def _foreign_path(state: Path) -> Path | None:
    """Return a path in the folder, or the folder itself, that another user owns: it may be a trap of links.

    Files of containers and templates belong to mapped user ids. They are not checked, because only the owner
    of the folder above can reach them.
    """
    nodes = (state, *(state / "nodes").glob("*"))
    guests = [node / name for node in nodes for name in ("containers", "templates")]
    for directory, folders, files in os.walk(state):
        if Path(directory) in guests:
            folders.clear()
        for path in (Path(directory), *(Path(directory, name) for name in (*folders, *files))):
            if (path.is_symlink() or path.exists()) and path.lstat().st_uid != os.geteuid():
                return path
    return None


def require_own(paths: Paths) -> None:
    """Raise UserError unless minipve created the folder. A link is refused, too."""
    state = paths.state
    if state.is_symlink():
        raise UserError(
            f"{state} is a link to {state.resolve()}: nothing was removed", f"rm -r {state.resolve()}"
        )
    if state.exists() and not (state / MARK).exists():
        raise UserError(
            f"minipve did not create {state}: nothing was removed",
            f"if it does belong to minipve: touch {state / MARK}",
        )


def remove(paths: Paths) -> None:
    """Remove the state folder, after ``require_own``."""
    require_own(paths)
    try:
        process.remove_tree(paths.state)
    except process.MachineError as error:
        raise UserError(str(error), f"rm -r {paths.state}") from error
