"""What is told of a captured trial, and what the tellers know: the decoded capture and when the runs were."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lab import wire
from lab.model.files import CaptureReport, Timings
from lab.results import store

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Grid:
    """A table of text: title, column heads, rows; ``numbers``: all columns but the first are some."""

    title: str
    head: list[str]
    rows: list[list[str]]
    numbers: bool = True


@dataclass(frozen=True)
class Heard:
    """What a capture says in sentences, in figures by stem (with captions) and in tables; they add up."""

    sentences: list[str] = field(default_factory=list)
    drawn: dict[str, tuple[str, Figure]] = field(default_factory=dict)
    grids: list[Grid] = field(default_factory=list)

    def __add__(self, other: Heard) -> Heard:
        return Heard(self.sentences + other.sentences, self.drawn | other.drawn, self.grids + other.grids)


@dataclass(frozen=True)
class Recording:
    """A trial's capture; ``runs``: begin and end of each run, in seconds of the capturing machine's clock."""

    capture: wire.Capture
    runs: list[tuple[float, float]]
    idle: bool

    @cached_property
    def window_ns(self) -> tuple[int, int]:
        """From the first run's begin to the last one's end; without runs the whole capture."""
        tally = self.capture.tally
        if not self.runs:
            return tally.first_ns, tally.last_ns + 1
        return int(1e9 * min(run[0] for run in self.runs)), int(1e9 * max(run[1] for run in self.runs))

    @property
    def window_s(self) -> float:
        """Length of the window, in seconds."""
        return (self.window_ns[1] - self.window_ns[0]) / 1e9

    def during(self, times_ns: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Does a time, or which of many, lie in the window?"""
        times = np.asarray(times_ns, np.int64)
        return (times >= self.window_ns[0]) & (times < self.window_ns[1])

    def rows(self, table: str) -> Rows:
        """A table of ``lab.wire``, row by row."""
        return wire.rows(self.capture.table(table))


def open_recording(directory: Path) -> Recording | None:
    """Read the capture of a trial; None if it has none."""
    files = sorted(directory.glob("capture*.pcap"))
    if not files:
        return None
    report = store.read(CaptureReport, directory)
    timings = report.timings if report else None
    runs = [(run.start, run.stop) for run in timings.samples] if timings else []
    capture = wire.open_capture(files, names=_names(timings))
    return Recording(capture, runs, timings is not None and timings.workload == "idle")


def group(node: str) -> str:
    """``worker-2`` -> ``workers``; there is one of the others."""
    name = node.partition("-")[0]
    return "workers" if name == "worker" else name


def _names(timings: Timings | None) -> dict[str, str]:
    """Addresses and names of the workers, as the workload saw them."""
    workers = timings.cluster.addresses if timings else {}
    return {address.removeprefix("tcp://").rpartition(":")[0]: name for name, address in workers.items()}
