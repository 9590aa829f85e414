"""Progress reports of long work: current step, fraction, remaining seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TextIO

Progress = Callable[[str, float, float | None], None]
"""``(step, fraction 0..1, seconds left or None)``. It is called often, so it must be fast."""

Step = Callable[[str, str], AbstractContextManager[Progress]]


def silent(what: str, fraction: float, left_s: float | None) -> None:
    """Ignore all reports."""


class Steps:
    """Named steps with their usual duration, to compute the overall fraction and the remaining time."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.total_s = sum(seconds.values())

    def before(self, name: str) -> float:
        """Return the usual seconds of all steps before ``name``."""
        names = list(self.seconds)
        return sum(self.seconds[step] for step in names[: names.index(name)])

    @contextlib.contextmanager
    def run(self, progress: Progress) -> Iterator[Step]:
        """Yield ``step(name, text)``, a context manager that yields the Progress of that step."""
        start = time.monotonic()

        @contextlib.contextmanager
        def step(name: str, what: str) -> Iterator[Progress]:
            def within(detail: str, fraction: float, _left_s: float | None) -> None:
                done_s = self.before(name) + fraction * self.seconds[name]
                progress(what, done_s / self.total_s, self.left_s(done_s, time.monotonic() - start))

            within("", 0.0, None)
            yield within

        yield step
        progress(f"done in {time.monotonic() - start:.0f} s", 1.0, 0.0)

    def left_s(self, done_s: float, elapsed_s: float) -> float:
        """Return the remaining seconds: the usual time of the rest, scaled by this machine's pace so far."""
        pace = elapsed_s / done_s if done_s >= 0.1 * self.total_s else 1.0
        return (self.total_s - done_s) * pace


def terminal(stream: TextIO = sys.stderr) -> Progress:
    """Return a Progress for people: one updated line on a terminal, one line per step elsewhere."""
    live, last_step = stream.isatty(), [""]

    def show(what: str, fraction: float, left_s: float | None) -> None:
        if live:
            left = "" if left_s is None or fraction >= 1 else f", {left_s:.0f} s left"
            end = "\n" if fraction >= 1 else ""
            print(f"\r\033[Kgolden image: {what} ({fraction:.0%}{left})", end=end, file=stream, flush=True)
        elif what != last_step[0]:
            print(f"golden image: {what}", file=stream, flush=True)
        last_step[0] = what

    return show
