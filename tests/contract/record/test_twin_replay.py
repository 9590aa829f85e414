"""The workload of a twin replays a recorded program on a real cluster, with placeholder tasks."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

import dasklab
import pytest
from dasklab import records
from dasklab.paths import WORKLOADS
from dasklab.predict import record
from dasklab.predict.twin import WORKLOAD, Machine, Twin
from dasklab.results.run import open_trial
from dasklab.sim.program import Program
from distributed import Client, LocalCluster

from tests.contract.record.short_tasks import sleep

TASKS, PAUSE_S = 12, 0.5


def test_replay_has_the_recorded_graph_and_takes_as_long(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(cluster) as client:
        client.gather(client.map(sleep, range(-10, 0)))  # first imports are not what is replayed
        with dasklab.record(client, tmp_path / "run") as run:
            futures = client.map(sleep, range(TASKS))
            client.gather(futures)
            time.sleep(PAUSE_S)
            data = client.scatter(b"0" * 100_000, hash=False)
            client.submit(sleep, 100, data, *futures).result()
    work = record.read(open_trial(run.folder))
    twin = Twin(work, Machine(cores=8, memory_bytes=16e9), "containers")
    (tmp_path / f"{WORKLOAD}.py").write_text(twin.source)
    monkeypatch.setattr(sys, "path", [str(WORKLOADS), str(tmp_path), *sys.path])
    workload, harness = importlib.import_module(WORKLOAD), importlib.import_module("_harness")
    timings, replayed = tmp_path / "timings.json", tmp_path / "replayed"
    options = ["--scheduler", cluster.scheduler_address, "--workers", "2", "--repeats", "2"]
    try:
        harness.main(workload.prepare, [*options, "--record", str(replayed), "--output", str(timings)])
    finally:
        del sys.modules[WORKLOAD]
    written = json.loads(timings.read_text())
    assert written["check"]["ok"]
    for sample in written["samples"]:  # a warm-up and two repeats
        assert sample["duration_s"] == pytest.approx(work.measured_s, rel=0.5)  # other tests use the CPUs
        assert sample["duration_s"] > PAUSE_S
    frames = records.load(replayed)
    program = work.client_program.program
    for repeat in (1, 2):
        own = {name: frames[name][frames[name].repeat == repeat] for name in ("tasks", "needs")}
        assert set(own["tasks"].key) == set(program.keys) - {
            program.keys[position] for position in scattered(program)
        }
        sizes = dict(zip(program.keys, (works[0][2] for works in program.works), strict=True))
        assert all(
            sizes[key] == nbytes for key, nbytes in zip(own["tasks"].key, own["tasks"].nbytes, strict=True)
        )
        expected = {
            (program.keys[at], program.keys[need]) for at, needs in enumerate(program.needs) for need in needs
        }
        assert set(zip(own["needs"].key, own["needs"].needed, strict=True)) == expected


def scattered(program: Program) -> set[int]:
    return {key for step in program.steps if step.does == "scatter" for key in step.keys}
