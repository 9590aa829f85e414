"""Workers that come late to a real cluster: the wait for them has a cause, and their number is said."""

from __future__ import annotations

import time
from pathlib import Path

import dasklab
import pytest
from dasklab.breakdown.model.causes import NO_WORKER
from dasklab.breakdown.show.answer import answer
from dasklab.breakdown.show.capacity import capacity_clause
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster

LOCAL = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}


def test_tasks_wait_for_the_first_worker(tmp_path: Path) -> None:
    with LocalCluster(n_workers=0, **LOCAL) as cluster, Client(cluster) as client:
        with dasklab.record(client, tmp_path / "run"):
            futures = client.map(time.sleep, [0.05] * 6, pure=False)
            time.sleep(1.5)
            cluster.scale(1)
            client.gather(futures)
        record = explain(open_trial(tmp_path / "run"))
    assert record.summary.path_by_cause[NO_WORKER] == pytest.approx(1.5, abs=0.5)
    assert record.summary.ranked()[0][0].name == "no worker"
    clause = capacity_clause(record.median_repeat)
    assert clause.startswith("no worker until 1.") and clause.endswith(", then 1 worker")
    assert f"on 1 thread ({clause}). " in answer(record).headline


def test_a_cluster_that_stays_as_it_is_has_no_such_sentence(tmp_path: Path) -> None:
    with LocalCluster(n_workers=2, **LOCAL) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        with dasklab.record(client, tmp_path / "run"):
            client.gather(client.map(time.sleep, [0.05] * 6, pure=False))
        record = explain(open_trial(tmp_path / "run"))
    assert not record.summary.path_by_cause.get(NO_WORKER)
    assert not capacity_clause(record.median_repeat)
