"""Which guests the endpoint is working on: an empty file for each, made before the work, removed after it.

A file that outlives the endpoint marks work that nobody will finish. The configuration cannot tell that: its
option ``lock`` may have been set by root, for a reason of root's own.
"""

from __future__ import annotations

from pathlib import Path


class Journal:
    """The journal of one kind of guest on one node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, vmid: int) -> None:
        """Note that work on a guest begins. Call this before the first change."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / str(vmid)).touch(mode=0o600)

    def end(self, vmid: int) -> None:
        """Note that the work is finished or undone. Call this after the last change."""
        (self._directory / str(vmid)).unlink(missing_ok=True)

    def vmids(self) -> list[int]:
        """The guests whose work has begun and not ended, ascending."""
        if not self._directory.is_dir():
            return []
        return sorted(int(file.name) for file in self._directory.iterdir() if file.name.isdecimal())
