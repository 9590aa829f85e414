"""How much memory workers used, of what limit, and what for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import Floats, expand, floats
from dasklab.breakdown.model.repeat import CLIENT, SCHEDULER, Repeat
from dasklab.model.forms.json_output import Number

THRESHOLDS = ("terminate", "pause", "spill")
HEARTBEAT_S = 0.5  # memory is that of up to so long before
"""Shares of the limit that a process's memory is compared with by Dask, the highest first."""


@dataclass(frozen=True)
class WorkerMemory:
    """The memory of a worker over time, from its heartbeats; sorted by time, on the scheduler's clock.

    Attributes:
        limit: NaN where there is none.
    """

    worker: str
    time: Floats
    process: Floats
    managed: Floats
    spilled: Floats
    limit: Floats


@dataclass(frozen=True)
class Peak:
    """When a worker's process had most memory in a repeat. Sizes are in bytes.

    Attributes:
        managed: results in it, as Dask estimates them.
        spilled: the most that was on its disk, at any time.
        limit: NaN where there is none.
        kind: the kind of task that had most of its threads at that time; empty if none ran.
        threshold: the highest of ``THRESHOLDS`` that it was above; empty if none.
    """

    worker: str
    process: float
    managed: float
    spilled: float
    limit: float
    kind: str
    threshold: str


def memory(frames: Mapping[str, pd.DataFrame]) -> list[WorkerMemory]:
    """Return the memory of each worker; of none where it was not recorded."""
    rows = frames["memory"].sort_values("time_s", kind="stable")
    return [
        WorkerMemory(
            str(worker),
            floats(own.time_s),
            floats(own.process_bytes),
            floats(own.managed_bytes),
            floats(own.spilled_bytes),
            floats(own.limit_bytes),
        )
        for worker, own in rows.groupby("worker")
    ]


def thresholds(config: pd.DataFrame) -> dict[str, float]:
    """Return the shares of the limit that are in force on all workers, by their names."""
    shares = {}
    config = config[~config.node.isin((CLIENT, SCHEDULER))]
    for name in THRESHOLDS:
        values = set(config[config.setting == f"worker.memory.{name}"].value)
        value = json.loads(values.pop()) if len(values) == 1 else None
        if isinstance(value, float):
            shares[name] = value
    return shares


def peaks(repeat: Repeat, workers: Sequence[WorkerMemory], shares: Mapping[str, float]) -> list[Peak]:
    """Return the peak of each worker in a repeat, that with the largest share of its limit first."""
    worker_peaks = []
    for own in workers:
        inside = np.flatnonzero((own.time >= repeat.start) & (own.time <= repeat.stop))
        if not len(inside):
            continue
        row = inside[own.process[inside].argmax()]
        share = own.process[row] / own.limit[row]
        worker_peaks.append(
            Peak(
                worker=own.worker,
                process=float(own.process[row]),
                managed=float(own.managed[row]),
                spilled=float(own.spilled[inside].max()),
                limit=float(own.limit[row]),
                kind=_kind_at(repeat, own.worker, float(own.time[row])),
                threshold=next((name for name in THRESHOLDS if share > shares.get(name, np.inf)), ""),
            )
        )
    return sorted(worker_peaks, key=lambda peak: -np.nan_to_num(peak.process / peak.limit))


def _kind_at(repeat: Repeat, worker: str, time: float) -> str:
    """Return the kind of most of the tasks that a worker ran at a time.

    Those that began after a pause do not count: the memory is that of before.
    """
    if worker not in repeat.threads:
        return ""
    tasks = repeat.tasks
    runs = np.flatnonzero(
        (tasks.worker == repeat.node(worker)) & (tasks.start <= time) & (tasks.stop >= time)
    )
    start = tasks.start[runs]
    runs = runs[repeat.evidence.paused.within(tasks.worker[runs], start - HEARTBEAT_S, start) == 0]
    names = [repeat.prefixes[key] for key in tasks.key[runs].tolist()]
    return max(names, key=names.count, default="")


@dataclass(frozen=True)
class KindPeak:
    """The most memory that a worker's process had while it ran a kind of task. Sizes are in bytes.

    Attributes:
        managed: results in it, as Dask estimates them.
        limit: NaN where there is none.
        at_s: when that was, since the start of the repeat.
        heartbeats: number of heartbeats while a task of the kind ran, of all workers.
    """

    kind: str
    worker: str
    process: Number
    managed: Number
    limit: Number
    at_s: float
    heartbeats: int


def kind_peaks(repeat: Repeat, workers: Sequence[WorkerMemory]) -> list[KindPeak]:
    """Return the peak of each kind of task that ran at a heartbeat, the largest first."""
    peaks_by_kind: defaultdict[str, list[KindPeak]] = defaultdict(list)
    for worker in workers:
        if worker.worker in repeat.threads:
            for peak in _kind_peaks(repeat, worker):
                peaks_by_kind[peak.kind].append(peak)
    largest = [
        replace(
            max(own, key=lambda peak: peak.process),
            heartbeats=sum(peak.heartbeats for peak in own),
        )
        for own in peaks_by_kind.values()
    ]
    return sorted(largest, key=lambda peak: -peak.process)


def _kind_peaks(repeat: Repeat, memory: WorkerMemory) -> Iterator[KindPeak]:
    """Yield the peak of each kind of task on one worker."""
    tasks = repeat.tasks
    mine = np.flatnonzero(tasks.worker == repeat.node(memory.worker))
    first = np.searchsorted(memory.time, np.maximum(tasks.start[mine], repeat.start))
    last = np.searchsorted(memory.time, np.minimum(tasks.stop[mine], repeat.stop), side="right")
    position, heartbeat = expand(first, last)
    task = mine[position]
    for kind in np.unique(repeat.prefix[task]):
        rows = np.flatnonzero(repeat.prefix[task] == kind)
        during = np.unique(heartbeat[rows])
        peak = during[memory.process[during].argmax()]
        yield KindPeak(
            kind=repeat.prefixes[tasks.key[task[rows[0]]]],
            worker=memory.worker,
            process=float(memory.process[peak]),
            managed=float(memory.managed[peak]),
            limit=float(memory.limit[peak]),
            at_s=float(memory.time[peak]) - repeat.start,
            heartbeats=len(during),
        )
