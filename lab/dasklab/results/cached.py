"""Files in the cache that were computed from files elsewhere: unpacked packs, tables and pictures.

They can be computed again. Those that nobody used for long are removed, and the oldest if all are too large.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from dasklab import atomic, paths

MAX_AGE_S = 30 * 86_400
MAX_BYTES = 8 * 1024**3
IN_USE_S = 6 * 3600  # a command that began to use a folder this long ago may still use it
COMPUTED = "computed"


def folder(kind: str) -> Path:
    """Return the folder of the cache for one kind of content."""
    return paths.cache() / kind


def place(kind: str, name: str) -> Path:
    """Return the folder ``name`` of a kind, which may not exist yet, as used now; remove what is past use."""
    target = folder(kind) / name
    with suppress(OSError):
        os.utime(target)
    _sweep(folder(kind), target)
    return target


def is_writable(directory: Path) -> bool:
    """Return whether files may be written into a directory, and it is no link, which may lead anywhere."""
    return os.access(directory, os.W_OK) and not directory.is_symlink()


def writable(directory: Path) -> Path:
    """Return where to write what is computed from a directory: there, or in the cache."""
    return directory if is_writable(directory) else folder_for(directory)


def folder_for(directory: Path, content: bytes = b"") -> Path:
    """Return the folder of the cache for what is computed from a directory.

    Args:
        directory: it names the folder in the cache.
        content: what is computed from. Another directory may have the same path tomorrow.
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(directory)) + b"\0" + content).hexdigest()[:16]
    target = place(COMPUTED, f"{name}-{directory.name}")
    target.mkdir(parents=True, exist_ok=True)
    return target


def _sweep(parent: Path, used: Path) -> None:
    """Remove abandoned drafts, folders that are too old, and the oldest until the rest is small enough."""
    if not parent.is_dir():
        return
    atomic.remove_abandoned_drafts(parent)
    now, total = time.time(), 0
    for entry, last_used in sorted(_entries(parent), key=lambda pair: pair[1], reverse=True):
        total += _size_bytes(entry)
        age_s = now - last_used
        if entry != used and (age_s > MAX_AGE_S or (total > MAX_BYTES and age_s > IN_USE_S)):
            shutil.rmtree(entry, ignore_errors=True)


def _entries(parent: Path) -> list[tuple[Path, float]]:
    entries = []
    for entry in parent.iterdir():
        if not entry.name.startswith(atomic.PREFIX):
            with suppress(OSError):
                entries.append((entry, entry.lstat().st_mtime))
    return entries


def _size_bytes(entry: Path) -> int:
    total = 0
    for path in entry.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total
