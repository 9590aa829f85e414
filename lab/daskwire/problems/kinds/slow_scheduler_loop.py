"""Schedulers whose event loop is busy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from daskwire.problems.evidence.evidence import Evidence
from daskwire.problems.evidence.intervals import Interval, hull, overlap, seconds
from daskwire.problems.finding import COSTLY_S, DELAYS, Finding, Kind, counted, is_cheap

MAX_ANSWER_MS = 300.0  # a later answer to a heartbeat waited for the event loop


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield schedulers that answer heartbeats late, unless the network delayed them."""
    beats = evidence.capture.table("heartbeats")
    groups: defaultdict[str, list[tuple[Interval, str]]] = defaultdict(list)
    columns = ("cluster", "worker", "time_ns", "answer_ms")
    for cluster, worker, time_ns, answer_ms in zip(*(beats[name] for name in columns), strict=True):
        if answer_ms is not None and answer_ms > MAX_ANSWER_MS:
            wait = time_ns, time_ns + round(answer_ms * 1e6)
            if evidence.during_work(cluster, wait) and overlap(wait, evidence.stalls[worker]) < 0.5:
                groups[cluster].append((wait, worker))
    for cluster, late in sorted(groups.items()):
        waits = [wait for wait, _ in late]
        longest_ms = max(end - begin for begin, end in waits) / 1e6
        workers = len({worker for _, worker in late})
        what = (
            f"answered {counted(len(late), 'heartbeat')} of {counted(workers, 'worker')} after more than"
            f" {MAX_ANSWER_MS:.0f} ms (up to {longest_ms:,.0f} ms)"
        )
        pair = cluster, evidence.capture.scheduler_names.get(cluster, ""), ""
        cost_s = seconds(waits)
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.9, len(late), is_note=is_cheap(cost_s))


KIND = Kind(
    name="slow scheduler loop",
    meaning="The scheduler's event loop is busy, so all its peers wait for answers.",
    threshold=f"heartbeats waited for an answer for more than 0.3 s, and {COSTLY_S} s in all",
    advice="Profile the scheduler; look for large graphs, plugins and extensions.",
    effects=frozenset({"zero window"}) | DELAYS,
    detect=detect,
)
