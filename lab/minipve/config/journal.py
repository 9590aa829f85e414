"""A journal of unfinished work: an empty file per guest, created before the work and removed after it.

A file that is there when the endpoint starts marks work that was interrupted. The option ``lock`` of the
guest's configuration is not enough to detect this, because root may have set it on purpose.
"""

from __future__ import annotations

from pathlib import Path


class Journal:
    """The journal of one kind of guest on one node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, vmid: int) -> None:
        """Record that work on a guest begins. Call this before the first change."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / str(vmid)).touch(mode=0o600)

    def end(self, vmid: int) -> None:
        """Record that the work is finished or undone. Call this after the last change."""
        (self._directory / str(vmid)).unlink(missing_ok=True)

    def vmids(self) -> list[int]:
        """Return the guests with unfinished work, ascending."""
        if not self._directory.is_dir():
            return []
        return sorted(int(file.name) for file in self._directory.iterdir() if file.name.isdecimal())
