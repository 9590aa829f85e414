"""How much memory workers used, of what limit, and what for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import Floats, floats
from dasklab.breakdown.model.repeat import CLIENT, SCHEDULER, Repeat

THRESHOLDS = ("terminate", "pause", "spill")
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
    """Return the kind of most of the tasks that a worker ran at a time."""
    if worker not in repeat.threads:
        return ""
    tasks = repeat.tasks
    runs = (tasks.worker == repeat.node(worker)) & (tasks.start <= time) & (tasks.stop >= time)
    names = [repeat.prefixes[key] for key in tasks.key[runs].tolist()]
    return max(names, key=names.count, default="")
