"""Workers whose process ended in the middle of the work."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS
from daskwire.analysis.problems.finding import Finding, Kind
from daskwire.analysis.tables.participants import broken_streams


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield workers whose host, before the scheduler's, closed their connection in the middle of the work.

    A worker that closes says so before; that of a process that was killed is closed by its kernel.
    """
    for worker, end in broken_streams(evidence.capture):
        pair = evidence.pairs[worker.flow]
        if end.flow != worker.flow:
            continue
        begin_ns, stop_ns = evidence.work.get(pair[0], (0, 0))
        if begin_ns < end.time_ns < stop_ns - SECOND_NS and not evidence.is_shut_down(pair[0], end.time_ns):
            what = "its host closed the connection with the scheduler, and the worker had not announced it"
            cost_s = evidence.unreported_s(pair, end.time_ns)
            yield Finding(KIND, what, pair, (end.time_ns, end.time_ns), cost_s, 0.8, flows=(worker.flow,))


KIND = Kind(
    name="lost worker",
    meaning="A worker's process ended in the middle of the work.",
    threshold=(
        "its host closed its connection with the scheduler more than 1 s before the end of the work, while a"
        " client was connected, and no message had announced it"
    ),
    advice="Look in the log of the worker and its nanny, and in dmesg for: Out of memory: Killed process.",
    filter="tcp.flags.fin == 1 || tcp.flags.reset == 1",
    effects=frozenset({"mid-stream reset", "refused connects", "standstill"}),
    detect=detect,
)
