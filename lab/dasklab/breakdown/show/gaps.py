"""What a record lacks, in sentences that come before the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dasklab.breakdown.model.repeat import Repeat
from dasklab.records.document import Record
from dasklab.terminal import counted, enumerated

MAX_NAMED_PROCESSES = 3
UNRECORDED = ": attach: "  # between a process and why it could not be recorded, in a record's failures


def gaps(record: Record, repeat: Repeat) -> Iterator[str]:
    """Return what a record lacks besides its end."""
    if record.lost:
        rows, places = f"{sum(record.lost.values()):,} rows", _names(list(record.lost))
        yield f"{rows} of {places} were dropped (their memory for records was full): seconds may be missing."
    for failure in record.failures:
        process, separator, reason = failure.partition(UNRECORDED)
        if separator:
            yield f"{process} was not recorded ({reason}): only what the scheduler knows of it is explained."
    if silent := _silent(repeat):
        yield f"{_names(silent)} sent no records: only what the scheduler knows of it is explained."
    if unmetered := [name for name in _unmetered(repeat) if name not in silent]:
        yield f"How long threads of {_names(unmetered)} waited for a CPU is unknown."
    if len(repeat.tasks) and not repeat.graphs:
        yield "No arrival of a graph was recorded: time between computations is not divided."


def _silent(repeat: Repeat) -> list[str]:
    """Return the workers that ran tasks and of whose own stamps there is none."""
    arrived = np.isnan(repeat.tasks.stamps["arrived"])
    return [
        name
        for node, name in zip(repeat.workers, repeat.threads, strict=True)
        if (own := repeat.tasks.worker == node).any() and arrived[own].all()
    ]


def _unmetered(repeat: Repeat) -> list[str]:
    """Return the workers that ran tasks without figures of how long they waited for a CPU."""
    cpu = repeat.evidence.cpu
    return [
        name
        for node, name in zip(repeat.workers, repeat.threads, strict=True)
        if (repeat.tasks.worker == node).any() and (node not in cpu or np.isnan(cpu[node].waiting_s).any())
    ]


def _names(processes: Sequence[str]) -> str:
    more = len(processes) - MAX_NAMED_PROCESSES
    if more > 0:
        return enumerated(
            [*processes[:MAX_NAMED_PROCESSES], counted(more, "other process", "other processes")]
        )
    return enumerated(processes)
