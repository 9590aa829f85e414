"""Attribute time without runnable tasks to what the client was doing.

The client's calls and graphs overlap (a compute call builds a graph, sends it and waits), so the most
specific one counts: data that moves, then the stages of a graph, then the wait for results. What is left is
the user's code, or Dask's, which builds a graph before the client hears of it; where the user's program was
not recorded, what is left is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dasklab.breakdown.assign.client_waits import Span, client_waits, waiting_lines
from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.causes import (
    ANSWER,
    BETWEEN,
    BUILD,
    GATHER,
    PLAN,
    RESULT,
    SCATTER,
    UNDIVIDED,
    UPLOAD,
    USER,
    Cause,
)
from dasklab.breakdown.model.repeat import Extent, Repeat


@dataclass(frozen=True)
class ClientTime:
    """The client's causes over time."""

    repeat: Repeat

    @cached_property
    def spans(self) -> dict[Cause, Span]:
        """When each cause may apply, the most specific one first."""
        repeat, waits = self.repeat, client_waits(self.repeat)
        returned = waits.returned < repeat.stop if waits.is_cut else waits.returned <= repeat.stop
        calls, lines = repeat.calls.of_kind("sync", "wait"), waiting_lines(repeat)
        construction, departure, arrival, ready = (
            np.array(column, float).reshape(-1)
            for column in (
                [graph.start for graph in repeat.graphs],
                [graph.sent for graph in repeat.graphs],
                [graph.received for graph in repeat.graphs],
                [graph.received + graph.materialise + graph.order + graph.state for graph in repeat.graphs],
            )
        )
        return {
            SCATTER: _around(repeat.calls.of_kind("sync"), repeat.calls.of_kind("scatter")),
            GATHER: repeat.calls.of_kind("gather"),
            PLAN: (arrival, ready),
            UPLOAD: (departure, arrival),
            BUILD: (construction, departure),
            RESULT: (waits.handled[returned], waits.returned[returned]),
            # a call that did not return in this record may have waited for more tasks than are known
            UNDIVIDED: (waits.handled[~returned], waits.returned[~returned]),
            ANSWER: (np.concatenate([calls[0], lines[0]]), np.concatenate([calls[1], lines[1]])),
        }

    @cached_property
    def building(self) -> Span:
        """When a line was seen in which Dask built a graph; its ends are not exact."""
        lines = self.repeat.lines
        return lines.start[lines.builds], lines.stop[lines.builds]

    @cached_property
    def changes(self) -> Floats:
        """Times at which the cause may change."""
        spans = [*self.spans.values(), self.building]
        return np.unique(np.concatenate([end for span in spans for end in span]))

    def cause_at(self, time: Floats) -> Codes:
        """Return the code of the cause at some times."""
        rest = BETWEEN if self.repeat.extent is Extent.WATCHED else USER
        codes = np.full(len(time), rest.code)
        for cause, (start, stop) in ((BUILD, self.building), *reversed(self.spans.items())):
            starts = np.searchsorted(np.sort(start), time, side="right")
            stops = np.searchsorted(np.sort(stop), time, side="right")
            codes = np.where(starts > stops, cause.code, codes)
        return codes


def _around(calls: Span, inner: Span) -> Span:
    """Return some calls, each as long as the call of the user's program that it is part of, if it is."""
    order = np.argsort(calls[0], kind="stable")
    start, stop = calls[0][order], calls[1][order]
    at = np.searchsorted(start, inner[0], side="right") - 1
    is_part = (at >= 0) & (np.append(stop, -np.inf)[at] >= inner[1])
    return np.where(is_part, np.append(start, 0.0)[at], inner[0]), np.where(
        is_part, np.append(stop, 0.0)[at], inner[1]
    )
