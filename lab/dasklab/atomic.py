"""Write files so that a reader sees either the old content or the new content, never a part of it.

A file is written under a temporary name in its own folder and renamed when it is complete. A folder is filled
under a temporary name, and its files are renamed into place only when all of them are complete. If writing
fails (a full disk, Ctrl-C, a bug), the old files stay, the temporary files are removed, and the OSError names
the file that the caller wanted to write. The module uses only the standard library, so that every package may
import it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".tmp-"
"""Prefix of the names of unfinished files and folders."""


@contextmanager
def replaced(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes ``path`` when the block ends without an exception.

    A symbolic link is followed. A device or a pipe, which cannot be replaced, is written to directly. Missing
    parent folders are created.

    Args:
        path: the file to write.
        mode: permissions of the file; by default those of the existing file.

    Raises:
        OSError: the file cannot be written; ``filename`` is ``path``.
    """
    with _errors_naming(path):
        if _is_stream(path):
            yield path
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{PREFIX}{secrets.token_hex(6)}{target.suffix}")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode))
            permissions = mode if mode is not None else _mode(target)
            if permissions is not None:
                draft.chmod(permissions)
            yield draft
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str, mode: int | None = None) -> None:
    """Replace the content of a file with ``text``, encoded as UTF-8."""
    with replaced(path, mode) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; if the block ends without an exception, its files move to ``folder``.

    Files of the same name are replaced. Others stay: the folder may hold files of the user.

    Raises:
        OSError: the folder cannot be written; ``filename`` is ``folder``.
    """
    with _errors_naming(folder):
        target = Path(os.path.realpath(folder))
        exists = target.is_dir()
        parent = target if exists else target.parent  # the same file system, so that files can be renamed
        parent.mkdir(parents=True, exist_ok=True)
        draft = parent / f"{PREFIX}{secrets.token_hex(6)}"
        try:
            draft.mkdir()
            yield draft
            if exists:
                _merge(draft, target)
            else:
                draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _merge(draft: Path, target: Path) -> None:
    for source in sorted(draft.rglob("*")):
        destination = target / source.relative_to(draft)
        if source.is_dir():
            destination.mkdir(exist_ok=True)
        else:
            source.replace(destination)


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _is_stream(path: Path) -> bool:
    """Return whether the path cannot be replaced by renaming: a device, a pipe, anything in /dev or /proc.

    /dev/stdout counts even if the shell redirects it to a regular file.
    """
    top, below = (*path.absolute().parts[1:3], "", "")[:2]
    if top == "proc" or (top == "dev" and below != "shm"):
        return True
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


@contextmanager
def _errors_naming(path: Path) -> Iterator[None]:
    """Put ``path`` into an OSError that names no file or a temporary one."""
    try:
        yield
    except OSError as error:
        if error.filename is None or f"{os.sep}{PREFIX}" in str(error.filename):
            number = _errno(error)
            raise OSError(number, os.strerror(number) if number else str(error), str(path)) from error
        raise


def _errno(error: OSError) -> int:
    """Return the error number, 0 if unknown. pyarrow has it only in its text: ``[Errno 28] Error ...``"""
    if error.errno is not None:
        return error.errno
    match = re.search(r"\[Errno (\d+)\]", str(error))
    return int(match[1]) if match else 0
