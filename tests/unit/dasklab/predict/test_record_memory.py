"""A cluster is too small if its workers have no space for what all workers held at once."""

from __future__ import annotations

import numpy as np
import pytest
from dasklab.breakdown.answers.facts.memory import WorkerMemory
from dasklab.predict.record_memory import held_data

GB = 1e9


def memory(worker: str, managed: list[float], limit: float = 4 * GB) -> WorkerMemory:
    """A worker whose process takes 1 GB besides results, with a heartbeat at each second."""
    held, time = np.array(managed), np.arange(len(managed), dtype=float)
    return WorkerMemory(worker, time, held + GB, held, np.zeros(len(managed)), np.full(len(managed), limit))


def test_most_is_what_all_workers_held_at_one_time() -> None:
    workers = [memory("worker-1", [0, 3 * GB, 0]), memory("worker-2", [3 * GB, 2 * GB, 0])]
    data = held_data(workers, 0, 10)
    assert (data.most, data.limit, data.other) == (5 * GB, 4 * GB, GB)
    assert not data.fits(1)
    assert data.fits(2)  # 3 GB of space on each
    assert "could not hold its 5 GB of results in memory" in data.note
    assert data.warning(1).startswith(
        "1 worker could not hold the 5 GB of results in memory: a worker has 4 GB"
    )


@pytest.mark.parametrize("workers", [[], [memory("worker-1", [9 * GB], np.nan)]])
def test_without_limit_or_record_everything_fits(workers: list[WorkerMemory]) -> None:
    assert held_data(workers, 0, 10).fits(1)
