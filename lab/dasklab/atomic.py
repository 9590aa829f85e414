"""Write files so that a reader sees either the old content or the new content, never a part of it.

A file is written under a temporary name in its own folder and renamed when it is complete. A folder is filled
under a temporary name, and its files are renamed into place only when all of them are complete. If writing
fails (a full disk, Ctrl-C, a bug), the old files stay, the temporary files are removed, and the OSError names
the file that the caller wanted to write. The module uses only the standard library, so that every package may
import it.

Links are not followed: a run may come from somebody else, and a link in it lead anywhere. A link that the
user typed is resolved where the command line is parsed (``follow_link``).

A process that is killed leaves its temporary files. Their names tell whose they are; the next process that
writes to the same folder removes those whose owner is gone.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PREFIX = ".tmp-"
"""Prefix of the names of unfinished files and folders."""

MAX_DRAFT_AGE_S = 2 * 86_400  # no command writes this long; for drafts whose owner cannot be looked up here
_DRAFT = re.compile(
    rf"{re.escape(PREFIX)}(?:(?P<system>[0-9a-f]{{8}})-(?P<pid>\d+)-)?[0-9a-f]{{12}}(?:\..+)?"
)


@contextmanager
def replaced(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes ``path`` when the block ends without an exception.

    A symbolic link is replaced, not followed. A device or a pipe, which cannot be replaced, is written to
    directly. Missing parent folders are created.

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
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned_drafts(path.parent)
        draft = path.with_name(f"{_draft_name()}{path.suffix}")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode))
            permissions = mode if mode is not None else _mode(path)
            if permissions is not None:
                draft.chmod(permissions)
            yield draft
            draft.replace(path)
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

    Files and links of the same name are replaced. Others stay: the folder may hold files of the user.

    Raises:
        OSError: the folder cannot be written, or is a link; ``filename`` is ``folder``.
    """
    with _errors_naming(folder):
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", str(folder))
        exists = folder.is_dir()
        parent = folder if exists else folder.parent  # the same file system, so that files can be renamed
        parent.mkdir(parents=True, exist_ok=True)
        for place in {parent, folder.parent}:
            remove_abandoned_drafts(place)
        draft = parent / _draft_name()
        try:
            draft.mkdir()
            yield draft
            if exists:
                _merge(draft, folder)
            else:
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def follow_link(path: Path) -> Path:
    """Return what a symbolic link leads to, by as many links as there are; another path as it is."""
    for _ in range(40):
        if not path.is_symlink() or _is_special(path):
            break
        path = path.parent / path.readlink()
    return path


def remove_abandoned_drafts(folder: Path) -> None:
    """Remove the unfinished files and folders of processes that have ended."""
    for draft in folder.glob(f"{PREFIX}*"):
        if not (name := _DRAFT.fullmatch(draft.name)) or not _is_abandoned(
            draft, name["system"], name["pid"]
        ):
            continue
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            with suppress(OSError):
                draft.unlink()


def _is_abandoned(draft: Path, system: str | None, pid: str | None) -> bool:
    if system == _system() and pid is not None and os.name == "posix":
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
    try:
        return time.time() - draft.lstat().st_mtime > MAX_DRAFT_AGE_S
    except OSError:
        return False


def _draft_name() -> str:
    return f"{PREFIX}{_system()}-{os.getpid()}-{secrets.token_hex(6)}"


@cache
def _system() -> str:
    """Return a name for the processes that this one can see: several systems may share a folder."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


def _merge(draft: Path, target: Path) -> None:
    for source in sorted(draft.rglob("*")):
        destination = target / source.relative_to(draft)
        if source.is_dir():
            if destination.is_symlink():
                destination.unlink()
            destination.mkdir(exist_ok=True)
        else:
            source.replace(destination)


def _mode(path: Path) -> int | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return None if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)


def _is_stream(path: Path) -> bool:
    """Return whether the path cannot be replaced by renaming: a device, a pipe, anything in /dev or /proc.

    /dev/stdout counts even if the shell redirects it to a regular file.
    """
    if _is_special(path):
        return True
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind))


def _is_special(path: Path) -> bool:
    top, below = (*path.absolute().parts[1:3], "", "")[:2]
    return top == "proc" or (top == "dev" and below != "shm")


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
