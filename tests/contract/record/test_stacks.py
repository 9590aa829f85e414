"""What blocked event loops and waiting tasks of a real cluster were doing: sampled stacks."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dasklab
import numpy as np
import pandas as pd
import pytest
from dask.utils import SerializableLock, key_split
from dasklab import records
from dasklab.breakdown.model.causes import MEASURE
from dasklab.breakdown.show.activities import activity_sentences
from dasklab.breakdown.show.explain import explain
from dasklab.records.recorder.process import KNOWS_SLEEPS
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, wait
from distributed import worker as worker_module

BUSY_S = 1.0


def recorded(cluster: LocalCluster, folder: Path, work: Callable[[Client], Any]) -> pd.DataFrame:
    """Return the samples of a recorded program; those of the client are of this test's own loop."""
    with Client(cluster) as client, dasklab.record(client, folder):
        work(client)
    samples = records.load(folder)["stacks"]
    return samples[samples.node != "client"]


def said(folder: Path) -> list[str]:
    return [*map(str, activity_sentences(explain(open_trial(folder)).median_repeat))]


class Slow:
    """An object that unpickles slowly."""

    def __reduce__(self) -> tuple[Any, ...]:
        return compute, (BUSY_S,)


class SlowSize:
    """An object whose size is measured slowly, when it is scattered: in the event loop."""

    def __sizeof__(self) -> int:
        return int(compute(BUSY_S))


def compute(seconds: float) -> float:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return seconds


def identity(value: Any) -> int:
    return 1


def write(number: int, lock: SerializableLock) -> int:
    with lock:
        time.sleep(BUSY_S)
    return number


def sort(number: int) -> int:
    numbers = [random.random() for _ in range(2_500_000)]  # a sort of fewer is over before a look is late
    for _ in range(2):
        sorted(numbers)
    return number


def test_an_object_that_unpickles_slowly_blocks_the_loop(cluster: LocalCluster, tmp_path: Path) -> None:
    samples = recorded(cluster, tmp_path, lambda client: client.submit(identity, Slow()).result())
    own = samples[(samples.reason == "blocked") & (samples.activity == "unpickle")]
    assert len(own) >= 3
    assert own["stack"].map(lambda frames: "compute" in frames[-1]).any()
    assert own.seconds.sum() > BUSY_S / 2
    assert not own.key.any()  # it is no task that does this


def test_an_import_blocks_the_loop(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text(f"import time\ntime.sleep({BUSY_S})\n")

    def load(path: str) -> None:
        sys.path.insert(0, path)
        __import__("slow_module")
        sys.path.remove(path)

    samples = recorded(cluster, tmp_path / "record", lambda client: client.run(load, str(tmp_path)))
    assert set(samples.name[samples.activity == "import"]) == {"slow_module"}
    assert any(" by importing slow_module, in " in text for text in said(tmp_path / "record"))


def test_a_task_that_waits_for_a_lock_of_its_process(tmp_path: Path) -> None:
    lock = SerializableLock("file")
    with LocalCluster(n_workers=1, threads_per_worker=4, dashboard_address=":0") as cluster:
        samples = recorded(
            cluster,
            tmp_path,
            lambda client: client.gather(client.map(write, range(6), lock=lock, key="write")),
        )
    waiting = samples[samples.reason == "waiting"]
    assert set(waiting.activity) == {"lock", ""}  # one holds it, and sleeps
    assert set(waiting.name[waiting.activity == "lock"]) == {"SerializableLock"}
    assert waiting.key.str.startswith("write").all()
    assert any(
        "write waited for a lock of their process (SerializableLock)" in text for text in said(tmp_path)
    )


def test_c_code_that_holds_the_interpreter(cluster: LocalCluster, tmp_path: Path) -> None:
    samples = recorded(cluster, tmp_path, lambda client: client.submit(sort, 1, key="sort").result())
    held = samples[samples.reason == "held"]
    own = held[held.key == "sort"]
    assert own.seconds.sum() > 0.2
    assert own["stack"].map(lambda frames: "sort" in frames[-1]).any()


@pytest.mark.skipif(not KNOWS_SLEEPS, reason="only Linux says how often a thread slept")
def test_for_how_long_the_interpreter_was_held(cluster: LocalCluster, tmp_path: Path) -> None:
    """By a task in Python; numpy releases it, and whoever sleeps does, too."""

    def in_numpy(seconds: float) -> None:
        end, numbers = time.monotonic() + seconds, np.ones(1_000_000)
        while time.monotonic() < end:
            np.sqrt(numbers, out=numbers)

    def work(client: Client) -> None:
        (first, *_) = client.scheduler_info()["workers"]
        for function in (compute, in_numpy, time.sleep):
            client.submit(function, 1.5, workers=[first], pure=False).result()

    with Client(cluster) as client, dasklab.record(client, tmp_path):
        work(client)
    tables = records.load(tmp_path)
    samples = tables["cpu"][tables["cpu"].node == tables["tasks"].worker.iloc[0]].sort_values("time_s")
    held = {
        key_split(task.key): np.ptp(np.interp((task.start_s, task.stop_s), samples.time_s, samples.held_s))
        for task in tables["tasks"].itertuples()
    }
    assert held["compute"] > 0.8 > 0.5 > max(held["in_numpy"], held["sleep"])


def test_a_slow_sizeof_blocks_the_loop(cluster: LocalCluster, tmp_path: Path) -> None:
    def keep(dask_worker: Any) -> None:
        dask_worker.update_data({"slow": SlowSize()})

    samples = recorded(cluster, tmp_path, lambda client: client.run(keep))
    assert "sizeof" in set(samples.activity)


def test_the_size_of_a_result_is_measured_in_its_task_s_thread(cluster: LocalCluster, tmp_path: Path) -> None:
    recorded(cluster, tmp_path, lambda client: wait(client.submit(SlowSize, key="made-1")))
    waits = records.load(tmp_path)["waits"]
    own = waits[waits.key == "made-1"]
    assert list(own.kind) == ["sizeof"]
    assert (own.stop_s - own.start_s).tolist() == pytest.approx([BUSY_S], rel=0.5)
    summary = explain(open_trial(tmp_path)).summary
    assert summary.path_by_cause[MEASURE] == pytest.approx(BUSY_S, rel=0.5)
    assert not explain(open_trial(tmp_path)).facts.primitives


def test_the_original_sizeof_is_back_after_a_recording(tmp_path: Path) -> None:
    before = worker_module.sizeof
    options = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        with dasklab.record(client, tmp_path):
            assert worker_module.sizeof is not before
        assert worker_module.sizeof is before


def test_nothing_is_sampled_of_tasks_that_compute(cluster: LocalCluster, tmp_path: Path) -> None:
    samples = recorded(cluster, tmp_path, lambda client: client.submit(compute, BUSY_S).result())
    assert samples.key[samples.key.str.startswith("compute")].empty


def test_the_sampler_ends_with_the_recording(tmp_path: Path) -> None:
    options = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        with dasklab.record(client, tmp_path):
            client.submit(identity, 1).result()
            assert names().count("dasklab-stacks") == 1  # for all recorders of the process
        assert "dasklab-stacks" not in names()


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]
