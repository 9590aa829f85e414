"""The state folder of an instance: made here and marked, so that nothing else is ever removed.

``MINIPVE_STATE`` names a folder, and a name can be wrong: a home, a link, somebody else's data. A folder
that was not there (or was empty) gets a mark; only one that carries the mark is written to and can be purged.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from minipve.paths import Paths
from minipve.user_error import UserError

MARK = ".minipve"
_SAYS = "minipve made this folder; `minipve stop --purge` removes all of it\n"


def claim(paths: Paths) -> None:
    """Make the state folder, private and marked; refuse one that is somebody else's."""
    state = paths.state
    try:
        state.mkdir(parents=True, exist_ok=True)
        if strange := _not_ours(state):
            raise UserError(
                f"{strange} belongs to another user (uid {strange.lstat().st_uid})",
                "run this as that user, or set MINIPVE_STATE to a folder of your own",
            )
        if not (state / MARK).exists() and any(state.iterdir()):
            raise UserError(
                f"{state} is not empty and no endpoint made it",
                f"set MINIPVE_STATE to another folder, or, if it is an endpoint's: touch {state / MARK}",
            )
        (state / MARK).write_text(_SAYS)
        state.chmod(0o700)
    except OSError as error:
        raise UserError(f"state folder {state}: {error.strerror}") from error


def _not_ours(state: Path) -> Path | None:
    """What in the folder, itself included, is another user's, who may have laid links there for us.

    What containers and their templates hold belongs to the user ids that they run as; nobody gets in there
    who does not own the folder above.
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
    """Refuse to remove a folder that no endpoint made, or what a link stands for."""
    state = paths.state
    if state.is_symlink():
        raise UserError(
            f"{state} is a link to {state.resolve()}: nothing is removed", f"rm -r {state.resolve()}"
        )
    if state.exists() and not (state / MARK).exists():
        raise UserError(
            f"no endpoint made {state}: nothing is removed", f"if it is an endpoint's: touch {state / MARK}"
        )


def remove(paths: Paths) -> None:
    """Remove the state folder, which ``require_own`` has let pass."""
    require_own(paths)
    try:
        if paths.state.exists():
            shutil.rmtree(paths.state)
    except OSError as error:
        raise UserError(f"{error.filename} stays: {error.strerror}", f"rm -r {paths.state}") from error
