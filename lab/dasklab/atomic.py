"""Write files so that a reader sees the old content or the new one, never a part of it.

A file is written under a temporary name in its own folder and renamed when it is whole. A folder is filled
under a temporary name, and its files are renamed into place only when all of them are whole. If the writing
fails (a full disk, Ctrl-C, a bug), what was there before stays, the temporary files are removed, and an
OSError names the file that was to be written. The module uses the standard library alone, so that every
package may import it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".tmp-"
"""How the names of unfinished files and folders begin."""


@contextmanager
def replaced(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes ``path`` when the block ends without an exception.

    A symbolic link is followed. A device or a pipe, which cannot be replaced, is written to directly. Missing
    parent folders are made. ``mode`` is that of the file; by default an existing file keeps its own.

    Raises:
        OSError: the file cannot be written; ``filename`` is ``path``.
    """
    with _naming(path):
        if _is_stream(path):
            yield path
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{PREFIX}{secrets.token_hex(6)}{target.suffix}")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode))
            kept = mode if mode is not None else _mode(target)
            if kept is not None:
                draft.chmod(kept)
            yield draft
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str, mode: int | None = None) -> None:
    """Replace a file by ``text`` (UTF-8)."""
    with replaced(path, mode) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; its files are moved to ``folder`` if no exception ends the block.

    Files of the same name are replaced, others stay: the user may have named a folder with other files in it.

    Raises:
        OSError: the folder cannot be written; ``filename`` is ``folder``.
    """
    with _naming(folder):
        target = Path(os.path.realpath(folder))
        exists = target.is_dir()
        beside = target if exists else target.parent  # the same file system, so that files can be renamed
        beside.mkdir(parents=True, exist_ok=True)
        draft = beside / f"{PREFIX}{secrets.token_hex(6)}"
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
        place = target / source.relative_to(draft)
        if source.is_dir():
            place.mkdir(exist_ok=True)
        else:
            source.replace(place)


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _is_stream(path: Path) -> bool:
    """Can this only be written to? /dev/stdout is such a name, even where a shell redirects it to a file."""
    top, below = (*path.absolute().parts[1:3], "", "")[:2]
    if top == "proc" or (top == "dev" and below != "shm"):
        return True
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in an OSError that names none, or a temporary one."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or "")
        if error.filename is None or f"{os.sep}{PREFIX}" in named:
            raise _named(error, path) from error
        raise


def _named(error: OSError, path: Path) -> OSError:
    number = error.errno if error.errno is not None else _number(error)
    return OSError(number, os.strerror(number) if number else str(error), str(path))


def _number(error: OSError) -> int:
    """pyarrow writes the number into its text alone: ``[Errno 28] Error writing bytes to file.``"""
    _, found, rest = str(error).partition("[Errno ")
    digits = rest.partition("]")[0]
    return int(digits) if found and digits.isdigit() else 0
