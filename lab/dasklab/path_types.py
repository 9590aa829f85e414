"""Types of command-line paths. A relative path belongs to the caller's folder, and an output is tried early.

A command may start others in another folder (Ansible runs in the project's), so each path is made absolute
here, once. An output that cannot be written is refused here too: before the work, not after it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click


class UserPath(click.Path):
    """A path as the caller's shell means it; the value is absolute."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(path_type=Path, **limits)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Check the path's limits and make it absolute."""
        return Path(os.fsdecode(super().convert(value, param, ctx))).absolute()


class OutputFile(UserPath):
    """A file that the command will write, or with ``in_folder`` also a folder that it goes into."""

    def __init__(self, *, in_folder: bool = False) -> None:
        super().__init__(dir_okay=in_folder, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Refuse a file that cannot be written."""
        path = super().convert(value, param, ctx)
        folder = path if path.is_dir() else path.parent
        if not path.is_file() and (reason := unwritable(folder)):
            self.fail(f"{path} cannot be written: {reason}", param, ctx)
        return path


class OutputFolder(UserPath):
    """A folder that the command will write into; it need not exist yet."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Refuse a folder that cannot be made or written into."""
        path = super().convert(value, param, ctx)
        nearest = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
        if reason := unwritable(nearest):
            self.fail(f"{path} cannot be written: {reason}", param, ctx)
        return path


def unwritable(folder: Path) -> str | None:
    """Say why no file can be made in ``folder``, found by making one; None if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror}"
