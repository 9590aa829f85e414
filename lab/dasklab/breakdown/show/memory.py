"""Sentences about the memory of workers: peaks near a limit, and results that were spilled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from dasklab.breakdown.answers.facts.memory import Peak, WorkerMemory, kind_peaks, peaks
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.sentence import Sentence
from dasklab.breakdown.show.wording import Row, percent
from dasklab.terminal import data_size, enumerated

TOPIC = "memory"
HEAD: Row = (
    "kind of task",
    "process, MB",
    "of it results, MB",
    "of the limit",
    "worker",
    "at, s",
    "heartbeats",
)
MOST_NAMES = 3
LEAST_SPILLED_BYTES = 1e6  # what is less is no reason to look at
MOSTLY = 0.5  # of the process: from there on it is said what the memory is not
ABOVE = {
    "spill": "above which Dask spills results",
    "pause": "above which Dask starts no task",
    "terminate": "above which its nanny ends it",
}


def memory_sentences(
    repeat: Repeat, workers: Sequence[WorkerMemory], shares: Mapping[str, float]
) -> Iterator[Sentence]:
    """Say which worker came nearest to its limit, if it crossed a threshold, and what was spilled."""
    worker_peaks = peaks(repeat, workers, shares)
    above = [peak for peak in worker_peaks if peak.threshold]
    if above:
        yield Sentence(TOPIC, _peak(above[0], shares))
    if len(above) > 1:
        others = [peak.worker for peak in above[1:]]
        names = enumerated(others) if len(others) <= MOST_NAMES else f"{len(others)} other workers"
        yield Sentence(TOPIC, f"{names} crossed a memory threshold, too.")
    spilled = [peak for peak in worker_peaks if peak.spilled > LEAST_SPILLED_BYTES]
    if spilled:
        spilled.sort(key=lambda peak: -peak.spilled)
        parts = [f"{data_size(peak.spilled)} on {peak.worker}" for peak in spilled[:MOST_NAMES]]
        yield Sentence(TOPIC, f"Results were spilled to disk, at most {enumerated(parts)}.")


def memory_rows(repeat: Repeat, workers: Sequence[WorkerMemory]) -> Iterator[Row]:
    """Return the peak of each kind of task that ran at a heartbeat, the largest first."""
    for peak in kind_peaks(repeat, workers):
        limit = "" if math.isnan(peak.limit) else percent(peak.process / peak.limit)
        sizes = (f"{nbytes / 1e6:,.0f}" for nbytes in (peak.process, peak.managed))
        yield (peak.kind, *sizes, limit, peak.worker, f"{peak.at_s:.1f}", str(peak.heartbeats))


def _peak(peak: Peak, shares: Mapping[str, float]) -> str:
    threshold = f"{100 * shares[peak.threshold]:.0f} %, {ABOVE[peak.threshold]}"
    unmanaged = max(0.0, peak.process - peak.managed)
    while_running = f" while {peak.kind} ran" if peak.kind else ""
    what = ""
    if unmanaged > MOSTLY * peak.process:
        what = f"; {data_size(unmanaged)} of it are no results that Dask manages"
    return (
        f"At a heartbeat {peak.worker} used {data_size(peak.process)} of its limit of"
        f" {data_size(peak.limit)}{while_running}: more than {threshold}{what}."
    )
