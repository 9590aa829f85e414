"""Tasks that ended with an exception."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.traffic import Pair
from daskwire.analysis.problems.finding import Finding, Kind, counted


def detect(evidence: Evidence) -> Iterator[Finding]:
    tasks = evidence.capture.table("tasks")
    groups: defaultdict[Pair, list[int]] = defaultdict(list)
    columns = ("cluster", "worker", "outcome", "finished_ns")
    for cluster, worker, outcome, time_ns in zip(*(tasks[name] for name in columns), strict=True):
        if outcome == "erred":
            scheduler = evidence.capture.scheduler_names.get(cluster, "")
            groups[cluster, worker, scheduler].append(time_ns)
    for pair, times in sorted(groups.items()):
        what = f"{counted(len(times), 'task')} ended with an exception"
        yield Finding(KIND, what, pair, (min(times), max(times)), number=len(times))


KIND = Kind(
    name="erred tasks",
    meaning="Tasks ended with an exception.",
    threshold="any",
    advice="See the exception on the client.",
    detect=detect,
)
