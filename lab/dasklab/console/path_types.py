"""Click types for paths. Relative paths are resolved at once, and outputs are checked before the work starts.

A command may start programs in another folder (Ansible runs in the project's), so each path becomes absolute
while the command line is parsed. An output that cannot be written is refused there too.
The user typed it, so a link is followed; links in a run are not (``atomic``).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click

from dasklab.atomic import follow_link
from dasklab.errors import LabError


class UserPath(click.Path):
    """A path relative to the caller's working directory; the value is absolute."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(path_type=Path, **limits)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return Path(os.fsdecode(super().convert(value, param, ctx))).absolute()


class OutputFile(UserPath):
    """A file to write. With ``in_folder`` the path may also be an existing folder to write the file into."""

    def __init__(self, *, in_folder: bool = False) -> None:
        super().__init__(dir_okay=in_folder, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = follow_link(super().convert(value, param, ctx))
        folder = path if path.is_dir() else path.parent
        if not path.is_file() and (reason := why_unwritable(folder)):
            self.fail(f"{path} cannot be written: {reason}", param, ctx)
        return path


class OutputFolder(UserPath):
    """A folder to write into. It need not exist yet."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = follow_link(super().convert(value, param, ctx))
        nearest = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
        if reason := why_unwritable(nearest):
            self.fail(f"{path} cannot be written: {reason}", param, ctx)
        return path


class RunPath(UserPath):
    """An existing path, which may be a packed run or lead into one: ``run.zip/1-01-baseline``.

    A packed run is unpacked into the cache; the value is the path there.
    """

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from dasklab.results.pack import folder_of

        try:
            folder = folder_of(Path(value).absolute())
        except LabError as error:
            self.fail(str(error), param, ctx)
        return super().convert(folder, param, ctx)


def why_unwritable(folder: Path) -> str | None:
    """Try to create a temporary file in ``folder``; return the reason if that fails, else None."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror}"
