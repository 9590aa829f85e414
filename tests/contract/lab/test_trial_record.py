"""The record that a workload writes of a real cluster of processes, read as a trial's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab import records
from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import AGAIN, COMPUTE
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.files import Timings
from dasklab.records.recorder.layout import KEY_SEPARATOR
from dasklab.records.schema import TABLES
from dasklab.results.run import open_trial
from dasklab.results.storage import documents

from tests.perfetto_trace import Trace
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[3]
WORKERS = ("worker-1", "worker-2")
SIZE = {"size": 600, "chunk": 100}
PROFILE = "DASK_DISTRIBUTED__WORKER__PROFILE__"
# Tasks are short: at Dask's usual interval of 10 ms it may not see any of them.
ENVIRONMENT = {**os.environ, f"{PROFILE}ENABLED": "True", f"{PROFILE}INTERVAL": "1ms"}


@contextmanager
def processes(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and the workers; yield the address and the processes, the scheduler first."""
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    common = ["--no-nanny", "--nthreads", "1", "--memory-limit", "0", "--host", "127.0.0.1"]
    workers = [
        ["worker", address, *common, "--name", name, "--local-directory", str(folder / name)]
        for name in WORKERS
    ]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for kind, *rest in (scheduler, *workers):
            command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *rest, "--no-dashboard"]
            with (folder / f"{len(running)}.log").open("wb") as log:
                running.append(subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT))
        yield address, running
    finally:
        for process in running:
            process.kill()
            process.wait()


def workload(name: str, address: str, params: Mapping[str, int], repeats: int, record: Path) -> list[str]:
    """Return the command line of a workload."""
    program = str(ROOT / "lab" / "dasklab" / "workloads" / f"{name}.py")
    options = ["--params", json.dumps(params), "--repeats", str(repeats), "--workers", str(len(WORKERS))]
    options += ["--timeout-s", str(PATIENCE_S), "--record", str(record)]
    return [sys.executable, program, "--scheduler", address, *options]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial's folder with timings.json and record/, of a cluster of three processes."""
    folder = tmp_path_factory.mktemp("trial")
    with processes(folder) as (address, _):
        argv = workload("array_study", address, SIZE, 2, folder / "record")
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    documents.write(folder, Timings.model_validate(json.loads(done.stdout)))
    return folder


@pytest.fixture(scope="module")
def frames(trial: Path) -> records.Frames:
    return records.load(trial)


@pytest.fixture(scope="module")
def explained(trial: Path) -> Explained:
    return explain(open_trial(trial))


def test_every_table_has_its_columns(frames: records.Frames) -> None:
    assert {name: list(frame) for name, frame in frames.items()} == {
        name: list(columns) for name, columns in TABLES.items()
    }


def test_every_task_has_its_whole_way(frames: records.Frames) -> None:
    """A stage that a version of Dask no longer tells would be missing here."""
    tasks = frames["tasks"]
    assert tasks.repeat.nunique() == 3
    assert len(tasks) > 3 * 100
    stages = ["decided_s", "sent_s", "arrived_s", "executing_s", "start_s", "stop_s", "done_s", "reported_s"]
    assert tasks[stages].notna().all(axis=None)
    assert tasks[["due_s", "report_due_s"]].notna().mean().gt(0.9).all()  # nothing holds the first back
    ours, theirs = stages[:2], stages[2:]
    for earlier, later in (*pairwise(ours), *pairwise(theirs)):
        assert (tasks[earlier] <= tasks[later] + 2e-6).all(), (earlier, later)
    assert (tasks.sent_s <= tasks.arrived_s).all()  # here all clocks are one
    assert (tasks.reported_s <= tasks.handled_s).all()
    assert tasks.trigger.ne("").mean() > 0.5


def test_stamps_are_the_workers_own(frames: records.Frames) -> None:
    """Dask's correction is off: it would move stamps by what it keeps in ``delays``."""
    assert (frames["delays"].delay_s != 0).any()
    tasks = frames["tasks"]
    assert ((tasks.stop_s - tasks.start_s) > 0).all()


def test_fetches_are_joined_with_who_served_them(frames: records.Frames) -> None:
    fetches = frames["fetches"]
    served = fetches[fetches.status == "OK"]
    assert len(served) > 5
    assert served.serve_start_s.notna().all()
    assert (served.start_s <= served.serve_start_s).all()
    assert (served.deserialise_s > 0).any()
    needed = set(frames["needs"].needed)
    assert {key for keys in served["keys"] for key in keys.split(KEY_SEPARATOR)} <= needed


def test_a_graph_s_way_is_told(frames: records.Frames, explained: Explained) -> None:
    """One graph a run; its durations are below zero where Dask has the sign wrong."""
    graphs = frames["graphs"]
    assert list(graphs.repeat) == list(frames["repeats"].repeat)
    assert (graphs.tasks > 100).all()
    assert (graphs.nbytes > 10_000).all()
    assert (graphs[["materialise_s", "order_s", "state_s"]] > 0).all(axis=None)
    assert (graphs.begin_s <= graphs.sent_s).all()
    assert (graphs.sent_s <= graphs.received_s).all()  # here all clocks are one
    way = explained.summary.graphs
    assert way is not None
    repeats, timed = frames["repeats"].set_index("repeat"), graphs[graphs.repeat > 0].set_index("repeat")
    before = (timed.received_s - repeats.start_s[timed.index]).mean()
    on_way = sum(way.seconds[stage] for stage in ("build", "pickle", "upload"))
    clock = explained.clocks["client"]  # between its stamps and the scheduler's lies what is not known of it
    assert on_way == pytest.approx(before, abs=clock.high_s - clock.low_s)


def test_loops_and_machines_are_told(frames: records.Frames) -> None:
    assert set(frames["busy"].node) == {"client", "scheduler", *WORKERS}
    assert (frames["busy"].stop_s > frames["busy"].start_s).all()
    metrics: pd.DataFrame = frames["metrics"]
    assert {"process/cpu/seconds", "process/waiting-for-cpu/seconds"} <= set(metrics.metric)
    assert metrics.metric.str.startswith("execute/").any()
    assert frames["repeats"].lost.eq(0).all()
    config = frames["config"]
    assert set(config.node) == {"scheduler", *WORKERS}
    assert set(frames["cpu"].node) == {"client", "scheduler", *WORKERS}
    lines = {
        (Path(file).name, code) for file, code in zip(frames["calls"].file, frames["calls"].code, strict=True)
    }
    assert (
        "array_study.py",
        "return Job(lambda i: float((result + i).compute()) - i, expected=16.0, tolerance=65.0 / size)",
    ) in lines
    assert (config.setting == "comm.compression").any()


def test_the_account_adds_up(explained: Explained) -> None:
    summary: Summary = explained.summary
    assert summary.repeats == 2
    assert summary.threads == 2
    for cells in (summary.breakdown, summary.path, summary.bottlenecks):
        assert sum(cells.values()) == pytest.approx(summary.makespan_s, rel=1e-3)
    assert summary.by_cause[COMPUTE] > 0


def test_one_clock_is_found_to_be_one(explained: Explained) -> None:
    for node, clock in explained.clocks.items():
        assert clock.linear, node
        assert clock.low_s <= 0 <= clock.high_s, node


def test_what_is_read_again_is_the_same(trial: Path, frames: records.Frames) -> None:
    again = records.load(trial)
    assert all(again[name].equals(frames[name]) for name in TABLES)


def test_explain_tells_it(trial: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trial.pftrace"
    said = CliRunner().invoke(main, ["explain", str(trial), "--trace", str(trace)])
    assert said.exit_code == 0, said.output
    assert "It took" in said.output
    assert "together" in said.output
    assert (trial / "explain.svg").exists()
    written = Trace(trace)
    assert {one.category for one in written.slices} >= {"task", "transfer", "event loop"}
    assert written.counters
    both = CliRunner().invoke(main, ["explain", str(trial), str(trial)])
    assert re.search(r"\+0\.00+ s", both.output)
    plain = CliRunner().invoke(main, ["explain", str(trial), "--json"])
    assert json.loads(plain.output)["makespan_s"] > 0


def test_dask_s_profile_is_a_file_for_speedscope(trial: Path, frames: records.Frames, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    said = CliRunner().invoke(main, ["explain", str(trial), "--profile", str(path)])
    assert said.exit_code == 0, said.output
    profiles = json.loads(path.read_text())["profiles"]
    assert {profile["name"] for profile in profiles} <= set(WORKERS)
    timed = frames["profiles"][frames["profiles"].repeat > 0]
    assert sum(profile["endValue"] for profile in profiles) == pytest.approx(timed.seconds.sum())
    computed = frames["tasks"][frames["tasks"].repeat > 0]
    assert 0 < timed.seconds.sum() < 5 * (computed.stop_s - computed.start_s).sum()


def test_a_folder_without_records_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="this is no record, trial or run"):
        records.load(tmp_path)


def test_death_of_a_worker_and_what_it_costs_are_named(tmp_path: Path) -> None:
    """As in the experiment ``faults``: a worker is killed while a run is timed, and its results are lost."""
    record, begun = tmp_path / "record", tmp_path / "begun"
    with processes(tmp_path) as (address, running):
        argv = workload("merge", address, {"tasks": 100, "task_ms": 100}, 1, record)
        with subprocess.Popen([*argv, "--signal", str(begun)], stdout=subprocess.PIPE, text=True) as program:
            until(begun.exists, "the first timed repeat")
            time.sleep(2)  # of five: by then it has results, and more to compute
            running[-1].kill()
            output, _ = program.communicate(timeout=PATIENCE_S)
    documents.write(tmp_path, Timings.model_validate(json.loads(output)))
    explained = explain(open_trial(tmp_path))
    assert explained.summary.by_cause[AGAIN] > 0
    (run,) = explained.timed
    assert run.left.keys() == {WORKERS[-1]}
    assert f"{WORKERS[-1]} died" in CliRunner().invoke(main, ["explain", str(tmp_path)]).output
