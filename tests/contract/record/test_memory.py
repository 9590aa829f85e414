"""The memory of real workers is said where it crossed a threshold or was spilled, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dasklab
import numpy as np
import pytest
from dasklab import records
from dasklab.breakdown.show.explain import explain
from dasklab.breakdown.show.memory import memory_sentences
from dasklab.records import promises
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, wait

HEARTBEATS_S = 2.5  # of two workers


def array(megabytes: int) -> Any:
    return np.random.default_rng(1).random(megabytes * 125_000)


def hoard(megabytes: int) -> int:
    """Use memory that is no result of a task."""
    hoarded = array(megabytes)
    time.sleep(HEARTBEATS_S)
    return len(hoarded)


@contextmanager
def running(limit: str, **thresholds: float | bool) -> Iterator[Client]:
    settings = {f"distributed.worker.memory.{name}": value for name, value in thresholds.items()}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(array, 1)  # imports this module
        yield client


def sentences(client: Client, folder: Path, act: Callable[[], object]) -> list[str]:
    with dasklab.record(client, folder) as run:
        act()
    assert not run.failures
    promises.validate(records.load(folder))
    record = explain(open_trial(folder))
    facts = record.facts
    return [*map(str, memory_sentences(record.median_repeat, facts.memory, facts.memory_thresholds))]


def test_memory_that_is_no_result_is_said_where_it_crosses_a_threshold(tmp_path: Path) -> None:
    with running("700MB", pause=0.6, spill=False, target=False, terminate=False) as client:
        worker = min(client.scheduler_info()["workers"])
        work = lambda: client.submit(hoard, 450, workers=[worker], pure=False).result()  # noqa: E731
        found = sentences(client, tmp_path / "run", work)
    (sentence,) = found
    assert " of its limit of 700 MB while hoard ran: more than 60 %, above which Dask starts no " in sentence
    assert sentence.endswith(" MB of it are no results that Dask manages.")
    rows = records.load(tmp_path / "run")["memory"]
    seconds = rows.time_s.max() - rows.time_s.min()
    assert rows.worker.nunique() == 2 and len(rows) <= 2 * (2 + 2.5 * seconds)  # one for each heartbeat


def test_spilled_results_are_said_with_their_size(tmp_path: Path) -> None:
    def work() -> None:
        parts = client.map(array, [30] * 10, pure=False)
        wait(parts)
        time.sleep(HEARTBEATS_S)
        del parts

    with running("300MB", target=0.3, spill=False, pause=False, terminate=False) as client:
        found = sentences(client, tmp_path / "run", work)
    (sentence,) = found
    assert sentence.startswith("Results were spilled to disk, at most ") and " MB on worker-" in sentence


def test_where_memory_is_plentiful_nothing_is_said(tmp_path: Path) -> None:
    with running("4GB") as client:
        found = sentences(client, tmp_path / "run", lambda: client.submit(hoard, 50, pure=False).result())
    assert found == []


def test_what_an_earlier_record_lacks_is_not_said() -> None:
    folder = Path(__file__).parents[2] / "data" / "records" / "leak_pause"
    facts = explain(open_trial(folder)).facts
    assert facts.memory == []
    assert facts.memory_thresholds == pytest.approx({"pause": 0.6})
