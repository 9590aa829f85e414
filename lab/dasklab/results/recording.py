"""A trial's capture as its readers use it: tables, a summary, and when the repeats were."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dasklab.model.files import CaptureReport
from dasklab.results import decode
from dasklab.results.storage import documents

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Recording:
    """A decoded capture. ``report`` has the counters of tcpdump and the kernel, and the captured repeats."""

    directory: Path
    report: CaptureReport
    summary: decode.CaptureSummary
    _tables: dict[str, Rows] = field(default_factory=dict)

    @cached_property
    def window_ns(self) -> decode.Window:
        """From the start of the first repeat to the end of the last; without repeats the whole capture."""
        return decode.window_ns(self.report, self.summary.first_ns, self.summary.last_ns)

    @property
    def window_s(self) -> float:
        """The length of the window, in seconds."""
        return (self.window_ns[1] - self.window_ns[0]) / 1e9

    @property
    def repeats(self) -> list[tuple[float, float]]:
        """Start and end of each repeat, in seconds of the capturing host's clock."""
        return [(repeat.start, repeat.stop) for repeat in self.report.timings.samples]

    @property
    def idle(self) -> bool:
        """Whether the cluster had nothing to compute."""
        return self.report.timings.workload == "idle"

    def during(self, time_ns: int) -> bool:
        """Whether a time lies in the window."""
        return self.window_ns[0] <= time_ns < self.window_ns[1]

    def rows(self, name: str) -> Rows:
        """Return a table of ``daskwire``, row by row; empty if the files could not be read."""
        if name not in self._tables:
            self._tables[name] = decode.rows(self.directory, self.report, self.summary, name)
        return self._tables[name]


def read(directory: Path) -> Recording | None:
    """Return a trial's capture; None if it has none."""
    report = documents.read(CaptureReport, directory)
    return Recording(directory, report, decode.summary(directory, report)) if report else None
