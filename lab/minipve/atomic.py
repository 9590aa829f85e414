"""Files that are never seen half-written, and locks between threads and processes: the store's two tools."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dasklab.atomic import PREFIX, write_text

UNFINISHED = PREFIX
"""How the name of everything begins that is to get its own name once it is whole."""


def write_atomic(path: Path, text: str, mode: int = 0o640) -> None:
    """Replace ``path`` by ``text`` in one step: a reader or a crash sees the old file or the new one."""
    write_text(path, text, mode)


def sweep(*folders: Path) -> None:
    """Remove what a killed process left half-written in these folders: nobody else may work in them."""
    for folder in folders:
        for left in list(folder.rglob(f"{UNFINISHED}*")):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()


@contextmanager
def flocked(path: Path, timeout_s: float, shared: bool = False) -> Iterator[None]:
    """Hold the lock file ``path``; TimeoutError when another holder keeps it for ``timeout_s``."""
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
