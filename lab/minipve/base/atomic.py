"""Replace files in one step, and lock files between threads and processes."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".tmp-"
"""Prefix of the names of unfinished files. They get their real name when they are complete."""


@contextmanager
def replaced(path: Path, mode: int) -> Iterator[Path]:
    """Yield a temporary path to write to. It replaces ``path`` if the block ends without an exception.

    Raises:
        OSError: the file cannot be written; ``filename`` is ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{UNFINISHED}{secrets.token_hex(6)}{path.suffix}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
        draft.chmod(mode)
        yield draft
        draft.replace(path)
    except OSError as error:
        if error.filename == str(draft):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        draft.unlink(missing_ok=True)


def write_atomic(path: Path, text: str, mode: int = 0o640) -> None:
    """Replace the contents of ``path`` in one step. Readers and crashes see the old file or the new one."""
    with replaced(path, mode) as draft:
        draft.write_text(text, encoding="utf-8")


def sweep(*folders: Path) -> None:
    """Remove unfinished files of a killed process. No other process may use the folders meanwhile."""
    for folder in folders:
        for leftover in list(folder.rglob(f"{UNFINISHED}*")):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()


@contextmanager
def flocked(path: Path, timeout_s: float, shared: bool = False) -> Iterator[None]:
    """Hold the lock on the file ``path``. Raises TimeoutError after ``timeout_s`` seconds of waiting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    with path.open("a") as stream:
        while True:
            try:
                fcntl.flock(stream, kind)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(str(path)) from None
                time.sleep(0.02)
        yield
