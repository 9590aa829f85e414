"""Every workload runs on a small local cluster, returns the right answer, and detects a wrong one."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import dask
import pytest
from dasklab.model.files import Timings
from dasklab.records.session import Session
from distributed import Client, LocalCluster
from distributed.shuffle._comms import CommShardsBuffer

WORKLOADS = Path(__file__).parents[3] / "lab" / "dasklab" / "workloads"
SMALL = {
    "idle": {"seconds": 0.01},
    "array_study": {"size": 200, "chunk": 100},
    "merge": {"tasks": 50, "task_ms": 1},
    "shuffle": {"parts": 4},
    "tree_reduction": {"leaves": 11, "size_kb": 1},
    "parallel_tasks": {"tasks": 10, "task_ms": 1},
    "rechunk": {"size": 100, "pieces": 3},
    "matrix_product": {"size": 100, "chunk": 50},
    "climate": {"years": 3, "height": 5, "width": 4},
    "pairs": {"numbers": 20, "partitions": 3},
    "vectorizer": {"texts": 20, "words": 3, "parts": 4, "columns": 8},
    "transpose": {"size": 90, "chunk": 30},
    "straggler": {"tasks": 10, "task_ms": 1},
    "groupby": {"rows": 1000, "partitions": 3, "groups": 10},
    "join": {"rows": 1000, "partitions": 3},
    "transfer": {"source": "0", "target": "1", "mb": 1, "blocks": 3},
}


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    quiet = {"distributed.worker.profile.enabled": False, "distributed.admin.system-monitor.interval": "10s"}
    with (
        dask.config.set(quiet),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
    ):
        yield cluster.scheduler_address


def measure(
    name: str,
    params: dict[str, object],
    scheduler: str,
    output: Path,
    workers: int = 2,
    settings: str = "",
    more: Sequence[str] = (),
) -> dict:
    folders = [str(WORKLOADS), str(output.parent)]
    sys.path[:0] = folders
    try:
        module, harness = importlib.import_module(name), importlib.import_module("_harness")
    finally:
        del sys.path[: len(folders)]
    command = [
        "--scheduler",
        scheduler,
        "--params",
        json.dumps(params),
        "--repeats",
        "2",
        "--output",
        str(output),
    ]
    harness.main(
        module.prepare,
        [*command, "--workers", str(workers), "--timeout-s", "60", "--settings", settings, *more],
    )
    return json.loads(output.read_text())


def test_every_workload_is_tested() -> None:
    assert set(SMALL) == {path.stem for path in WORKLOADS.glob("[!_]*.py")}


@pytest.mark.parametrize("name", SMALL)
def test_workload_returns_the_right_answer(name: str, scheduler: str, tmp_path: Path) -> None:
    document = measure(name, SMALL[name], scheduler, tmp_path / "timings.json")
    assert document["check"]["ok"], document["check"]
    assert document["workload"] == name
    assert document["params"].items() >= SMALL[name].items()
    assert [sample["warmup"] for sample in document["samples"]] == [True, False, False]
    assert all(sample["duration_s"] > 0 for sample in document["samples"])
    assert document["cluster"]["workers"] == 2
    assert document["versions"]["distributed"]


def test_data_that_shuffles_move_counts(scheduler: str, tmp_path: Path) -> None:
    before, whole = vars(CommShardsBuffer).get("process"), 400 * 400 * 8
    params = {"size": 400, "pieces": 4, "method": "p2p"}
    document = measure("rechunk", params, scheduler, tmp_path / "timings.json")
    assert all(whole / 10 < sample["transfer_bytes"] < 2 * whole for sample in document["samples"])
    assert vars(CommShardsBuffer).get("process") is before


def test_merge_accepts_delayed_graphs(scheduler: str, tmp_path: Path) -> None:
    document = measure("merge", {"tasks": 20, "graph": "delayed"}, scheduler, tmp_path / "timings.json")
    assert document["check"]["ok"]
    with pytest.raises(SystemExit, match="no graph 'dalayed'; there are raw, delayed"):
        measure("merge", {"graph": "dalayed"}, scheduler, tmp_path / "timings.json")


def test_timings_are_a_trials_document_with_the_settings_of_all_processes(
    scheduler: str, tmp_path: Path
) -> None:
    name = "distributed.admin.system-monitor.interval"
    document = measure("merge", {"tasks": 5}, scheduler, tmp_path / "timings.json", settings=name)
    assert document["config"] == {process: {name: "10s"} for process in ("client", "scheduler", "0", "1")}
    assert Timings.model_validate(document).workload == "merge"


def test_file_is_created_on_the_hosts_when_the_first_timed_run_begins(scheduler: str, tmp_path: Path) -> None:
    signal = tmp_path / "signal"
    document = measure("merge", {"tasks": 5}, scheduler, tmp_path / "t.json", more=["--signal", str(signal)])
    warmup, first, _ = document["samples"]
    assert warmup["stop"] <= signal.stat().st_mtime + 0.01
    assert signal.stat().st_mtime <= first["start"] + 0.01
    measure("merge", {"tasks": 5}, scheduler, tmp_path / "t.json", more=["--signal", "/nowhere/signal"])


def test_workload_of_the_how_to_page_runs(scheduler: str, tmp_path: Path) -> None:
    page = (WORKLOADS.parents[2] / "docs" / "how-to" / "write-an-experiment.md").read_text()
    (tmp_path / "absolute.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    assert measure("absolute", {"tasks": 10}, scheduler, tmp_path / "t.json")["check"]["expected"] == 45


def test_answer_outside_the_tolerance_is_wrong() -> None:
    sys.path.insert(0, str(WORKLOADS))
    job = importlib.import_module("_harness").Job(lambda run: 0.0, expected=16.0, tolerance=0.5)
    assert job.accepts(16.4) and not job.accepts(16.6) and not job.accepts(math.nan)


def test_unknown_parameter_is_one_line_and_exit_status_2(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        measure("array_study", {"sise": 1}, scheduler, tmp_path / "timings.json")
    assert capsys.readouterr().err == "unknown parameter sise; allowed: size, chunk\n"


def test_transfer_names_a_missing_worker(scheduler: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no worker 'worker-9'; there are 0, 1"):
        measure("transfer", {"source": "0", "target": "worker-9"}, scheduler, tmp_path / "timings.json")


def test_wrong_number_of_workers_is_one_line_and_exit_status_4(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="4"):
        measure("array_study", {}, scheduler, tmp_path / "timings.json", workers=1)
    assert capsys.readouterr().err == "2 workers are connected, 1 were requested\n"


def test_cluster_that_cannot_be_recorded_is_timed_all_the_same(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record"
    with Client(scheduler) as other, Session(other, tmp_path / "other", hold=True):
        document = measure(
            "merge", SMALL["merge"], scheduler, tmp_path / "timings.json", more=["--record", str(record)]
        )
    assert document["check"]["ok"]
    assert not list(record.glob("*"))
    assert "cannot be recorded (this cluster is already being recorded" in capsys.readouterr().err


def test_performance_report_covers_the_runs(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure("merge", SMALL["merge"], scheduler, tmp_path / "before.json")
    harness, events = sys.modules["_harness"], []

    @contextlib.contextmanager
    def report(filename: str, mode: str) -> Iterator[None]:
        events.append("begin")
        yield
        events.append("end")
        Path(filename).write_text(mode)

    monkeypatch.setattr(harness, "performance_report", report)

    def run(*_: object) -> dict[str, object]:
        events.append("run")
        return {"answer": 50 * 51 / 2, "ok": True}

    monkeypatch.setattr(harness, "_sample", run)
    more = ["--report", str(tmp_path / "report.html")]
    measure("merge", SMALL["merge"], scheduler, tmp_path / "timings.json", more=more)
    assert events == ["begin", "run", "run", "run", "end"]
    assert (tmp_path / "report.html").read_text() == "inline"
