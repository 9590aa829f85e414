"""How far simulations are, on one line of a terminal; elsewhere nothing is printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dasklab.terminal import counted, duration, working


@dataclass
class Simulating:
    """Counts outcomes and shows their number and the time left.

    Attributes:
        show: shows a text in place of the one before.
        total: number of simulations; 0 while it is unknown.
        clock: returns seconds.
    """

    show: Callable[[str], None]
    total: int = 0
    clock: Callable[[], float] = time.monotonic
    _number: int = field(default=0, init=False)
    _start_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._start_s = self.clock()

    def expect(self, number: int) -> None:
        """Announce so many simulations in addition to those done; the time left is counted from now."""
        self.total, self._number, self._start_s = number, 0, self.clock()
        self.show(f"0 of {number} simulations")

    def report(self, _outcome: object) -> None:
        """Count one more simulation, and show the number and the time left."""
        self._number += 1
        if not self.total:
            self.show(counted(self._number, "simulation"))
            return
        left_s = (self.clock() - self._start_s) / self._number * max(0, self.total - self._number)
        self.show(f"{self._number} of {self.total} simulations, about {duration(left_s)} left")


@contextmanager
def simulating(total: int = 0) -> Iterator[Simulating]:
    """Show the progress of simulations; ``total`` is their number, if it is known."""
    with working() as show:
        yield Simulating(show, total)
