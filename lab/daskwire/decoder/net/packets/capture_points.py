"""Capture points: an interface of a machine, outside of tunnels or within one."""

from __future__ import annotations

import numpy as np

from daskwire.base.arrays import Ints

CapturePoint = tuple[int, int, int]  # file, interface, depth of the tunnel


class CapturePoints:
    """Numbers of the capture points."""

    def __init__(self) -> None:
        self._numbers: dict[CapturePoint, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, point: CapturePoint) -> int:
        return self._numbers.setdefault(point, len(self._numbers))

    def files(self) -> Ints:
        """Return the file of each capture point."""
        return np.array([file for file, _, _ in self._numbers], np.int64)

    def merged(self, recording: list[int]) -> Ints:
        """Return a new number for each point, the same one for all files of a recording."""
        numbers: dict[CapturePoint, int] = {}
        return np.array(
            [
                numbers.setdefault((recording[file], interface, depth), len(numbers))
                for file, interface, depth in self._numbers
            ],
            np.int64,
        )
