"""A trial's capture as all read it who ask about it: tables, a summary, and when the runs were."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dasklab.model.files import CaptureReport
from dasklab.results.storage import decode, store

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Recording:
    """A decoded capture; ``report`` is what tcpdump and the kernel said, and the runs that were captured."""

    directory: Path
    report: CaptureReport
    summary: decode.Summary
    _tables: dict[str, Rows] = field(default_factory=dict)

    @cached_property
    def window_ns(self) -> decode.Window:
        """From the first run's begin to the last one's end; without runs the whole capture."""
        return decode.window_ns(self.report, self.summary.first_ns, self.summary.last_ns)

    @property
    def window_s(self) -> float:
        """Length of the window, in seconds."""
        return (self.window_ns[1] - self.window_ns[0]) / 1e9

    @property
    def runs(self) -> list[tuple[float, float]]:
        """Begin and end of each run, in seconds of the capturing machine's clock."""
        return [(run.start, run.stop) for run in self.report.timings.samples]

    @property
    def idle(self) -> bool:
        """Was the cluster asked to do nothing?"""
        return self.report.timings.workload == "idle"

    def during(self, time_ns: int) -> bool:
        """Does a time lie in the window?"""
        return self.window_ns[0] <= time_ns < self.window_ns[1]

    def rows(self, name: str) -> Rows:
        """A table of ``daskwire``, row by row; empty where the files could not be read."""
        if name not in self._tables:
            self._tables[name] = decode.rows(self.directory, self.report, self.summary, name)
        return self._tables[name]


def read(directory: Path) -> Recording | None:
    """A trial's capture; None if it has none."""
    report = store.read(CaptureReport, directory)
    return Recording(directory, report, decode.summary(directory, report)) if report else None
