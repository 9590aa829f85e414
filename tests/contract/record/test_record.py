"""``dasklab.record`` on real clusters: what it records, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import dasklab
import distributed
import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab import records
from dasklab.breakdown.model.causes import USER_CODE
from dasklab.breakdown.show.explain import explain
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.records.document import RECORD, Record, read_document
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, Worker, as_completed

from tests.contract.record.clusters import LOCAL
from tests.ports import free_port
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]  # from where a worker imports this module
STAGES = [
    "decided_s",
    "sent_s",
    "arrived_s",
    "ready_s",
    "executing_s",
    "start_s",
    "stop_s",
    "done_s",
    "reported_s",
]


def inc(number: int) -> int:
    return number + 1


def total(client: Client, number: int = 30) -> int:
    parts = client.map(inc, range(number), pure=False)
    return int(client.submit(sum, parts, pure=False).result())


class Counter:
    """An actor."""

    def __init__(self) -> None:
        self.number = 0

    def add(self, number: int) -> int:
        self.number += number
        return self.number


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


def changed(dask_worker: Worker) -> dict[str, Any]:
    """What a recorder changes in a worker and its process."""
    import gc

    selector = dask_worker.io_loop.asyncio_loop._selector
    return {
        "plugins": sorted(dask_worker.plugins),
        "handlers": {name: hasattr(handler, "__wrapped__") for name, handler in dask_worker.handlers.items()},
        "comm": sorted(vars(dask_worker.batched_stream.comm)),
        "select": "select" in vars(selector),
        "fetch": distributed.worker.get_data_from_worker.__qualname__,
        "process": [name for name in vars(distributed) if name.startswith("_dasklab")],
        "gc": len(gc.callbacks),
    }


def changed_scheduler(dask_scheduler: Any) -> dict[str, Any]:
    selector = dask_scheduler.io_loop.asyncio_loop._selector
    streams = [*dask_scheduler.stream_comms.values(), *dask_scheduler.client_comms.values()]
    return {
        "handlers": sorted(dask_scheduler.handlers),
        "plugins": sorted(dask_scheduler.plugins),
        "worker plugins": sorted(dask_scheduler.worker_plugins),
        "comms": [sorted(vars(stream.comm)) for stream in streams],
        "select": "select" in vars(selector),
    }


def state(client: Client) -> list[Any]:
    mine = sorted(name for name in vars(client) if callable(vars(client)[name]))
    return [client.run(changed), client.run_on_scheduler(changed_scheduler), mine]


def test_connections_that_were_open_are_recorded(client: Client, tmp_path: Path) -> None:
    total(client)  # so they are open
    with dasklab.record(client, tmp_path / "run"):
        assert total(client) == 465
    tasks = records.load(tmp_path / "run")["tasks"]
    assert len(tasks) == 31
    assert tasks[STAGES].notna().all(axis=None)
    assert set(tasks.worker) == {"worker-0", "worker-1"}
    summary = explain(open_trial(tmp_path / "run")).summary
    for cells in (summary.breakdown, summary.path, summary.bottlenecks):
        assert sum(cells.values()) == pytest.approx(summary.makespan_s, rel=1e-3)


def test_calls_of_an_actor_are_recorded(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run") as run:
        actor = client.submit(Counter, actor=True, pure=False).result()
        assert [actor.add(number).result() for number in (1, 2, 3)] == [1, 3, 6]
    calls = records.load(tmp_path / "run")["actor_calls"]
    assert calls.function.tolist() == ["add"] * 3
    assert not run.failures


def test_detaching_undoes_everything(client: Client, tmp_path: Path) -> None:
    total(client)
    before = state(client)
    with dasklab.record(client, tmp_path / "run") as run:
        total(client)
        assert state(client) != before
    assert state(client) == before
    assert run.failures == {} and run.lost == {}
    assert total(client) == 465


def test_tables_end_at_the_limit_and_counting_goes_on(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run", max_mb=0):
        total(client)
    about = read_document(tmp_path / "run")
    assert about.complete is False and about.complete_until is None
    assert about.beyond_limit["tasks"] == 62  # 31 rows of the scheduler, 31 of workers
    frames = records.load(tmp_path / "run")
    assert frames["tasks"].empty and not frames["metrics"].empty


def test_recording_needs_no_memory_for_reading() -> None:
    program = "import sys, dasklab.records.session; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_worker_with_another_python_is_left_out_and_named(tmp_path: Path) -> None:
    def age(dask_worker: Worker) -> str:
        dask_worker.handlers["versions"] = lambda: {"packages": {"python": "3.1.4.final.0"}}
        return dask_worker.address

    with LocalCluster(**LOCAL) as cluster, Client(cluster) as client:
        old = next(iter(client.scheduler_info()["workers"]))
        client.run(age, workers=[old])
        with dasklab.record(client, tmp_path / "run") as run:
            assert total(client) == 465
        assert [failure for failure in run.failures if old in failure] == [
            f"{old}: attach: Python 3.1.4 instead of {platform.python_version()}"
        ]
        assert total(client) == 465
    frames = records.load(tmp_path / "run")
    assert frames["tasks"].arrived_s.notna().any() and frames["tasks"].arrived_s.isna().any()


def test_a_worker_whose_dask_lacks_something_works_on_and_is_named(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise AttributeError("as a test")

    monkeypatch.setattr("dasklab.records.recorder.worker.WorkerRecorder._wrap_fetches", broken)
    before = state(client)
    with dasklab.record(client, tmp_path / "run") as run:
        assert total(client) == 465
    assert state(client) == before
    assert sorted(run.failures) == [
        f"{worker}: attach: AttributeError(as a test)"
        for worker in sorted(client.scheduler_info()["workers"])
    ]


def test_a_scheduler_with_another_python_is_refused(client: Client, tmp_path: Path) -> None:
    def age(dask_scheduler: Any) -> None:
        dask_scheduler.handlers["versions"] = lambda: {"packages": {"python": "3.1.4.final.0"}}

    def renew(dask_scheduler: Any) -> None:
        dask_scheduler.handlers["versions"] = dask_scheduler.versions

    client.run_on_scheduler(age)
    before = state(client)
    try:
        with pytest.raises(LabError, match=r"the scheduler runs Python 3\.1\.4, this program"):
            dasklab.record(client, tmp_path / "run").__enter__()
        assert state(client) == before
    finally:
        client.run_on_scheduler(renew)


def test_a_folder_that_is_removed_costs_one_warning(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = state(client)
    with dasklab.record(client, tmp_path / "run"):
        shutil.rmtree(tmp_path / "run")
        result = total(client)
    assert result == 465
    assert state(client) == before
    assert [r.message for r in caplog.records if r.name == "dasklab"] == [
        f"{tmp_path / 'run'}: the record ends here, it cannot be written: No such file or directory"
    ]


def test_a_full_disk_costs_one_warning_and_keeps_what_was_written(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = state(client)
    with dasklab.record(client, tmp_path / "run"):
        (tmp_path / "run" / RECORD).unlink(missing_ok=True)
        (tmp_path / "run" / RECORD).symlink_to("/dev/full")
        result = total(client)
    assert result == 465
    assert state(client) == before
    warnings = [r.message for r in caplog.records if r.name == "dasklab"]
    assert len(warnings) == 1 and "No space left on device" in warnings[0]
    assert completeness(tmp_path / "run") is False


def test_a_scheduler_without_a_recorder_costs_one_warning(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def forget(dask_scheduler: Any) -> None:
        """Leave the scheduler as one that was started again."""
        await dask_scheduler.plugins["dasklab-recorder"].close_everywhere()

    before = state(client)
    with dasklab.record(client, tmp_path / "run"):
        client.run_on_scheduler(forget)
        result = total(client)
    assert result == 465
    assert state(client) == before
    assert len([r for r in caplog.records if r.name == "dasklab"]) == 1
    assert completeness(tmp_path / "run") is False


def test_a_client_that_is_closed_in_the_block(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    before = state(client)[:2]
    mine = Client(cluster.scheduler_address, set_as_default=False)
    with dasklab.record(mine, tmp_path / "run"):
        result = total(mine)
        mine.close()
    assert result == 465
    assert completeness(tmp_path / "run") is False
    eventually(lambda: state(client)[:2] == before)


def test_a_record_that_was_left_behind_is_ended_by_the_next(client: Client, tmp_path: Path) -> None:
    before = state(client)
    left = dasklab.record(client, tmp_path / "left").__enter__()
    left._leave()  # as Ctrl-C does in __exit__
    with dasklab.record(client, tmp_path / "run"):
        total(client)
    assert state(client) == before
    assert completeness(tmp_path / "run") is True
    assert len(records.load(tmp_path / "run")["tasks"]) == 31


def test_what_the_user_put_into_a_client_is_there_afterwards(client: Client, tmp_path: Path) -> None:
    calls = []
    gather, sync = client._gather, client.sync

    def mine(*args: Any, **options: Any) -> Any:
        calls.append("gather")
        return gather(*args, **options)

    def later(*args: Any, **options: Any) -> Any:
        calls.append("sync")
        return sync(*args, **options)

    vars(client)["_gather"] = mine
    with dasklab.record(client, tmp_path / "run"):
        vars(client)["sync"] = later
        total(client)
    assert client._gather is mine and client.sync is later
    calls.clear()
    client.gather(client.map(inc, range(2), pure=False))
    assert calls.count("gather") == 1 and "sync" in calls


class Wrapping(distributed.WorkerPlugin):
    """Counts requests for data, as a plugin of the user's may do."""

    name = "wrapping"

    def setup(self, worker: Worker) -> None:
        original = worker.handlers["get_data"]

        async def get_data(comm: Any, **message: Any) -> Any:
            worker.wrapped = getattr(worker, "wrapped", 0) + 1
            return await original(comm, **message)

        worker.handlers["get_data"] = get_data


def test_wrappers_that_others_put_on_top_stay(tmp_path: Path) -> None:
    def served(dask_worker: Worker) -> int:
        return int(getattr(dask_worker, "wrapped", 0))

    with LocalCluster(**LOCAL) as cluster, Client(cluster) as client:
        with dasklab.record(client, tmp_path / "run"):
            client.register_plugin(Wrapping())
        first, second = client.scheduler_info()["workers"]
        before = sum(client.run(served).values())
        part = client.submit(inc, 1, workers=[first], pure=False)
        assert client.submit(inc, part, workers=[second], pure=False).result() == 3
        assert sum(client.run(served).values()) > before


class Hostile:
    """Counts how often its size is asked for in this process."""

    asked: ClassVar[list[int]] = []

    def __sizeof__(self) -> int:
        self.asked.append(1)
        return 1000


def test_the_size_of_what_is_scattered_is_dask_s_own(client: Client, tmp_path: Path) -> None:
    Hostile.asked.clear()
    client.scatter([Hostile(), Hostile()], hash=False)
    without = len(Hostile.asked)
    with dasklab.record(client, tmp_path / "run"):
        client.scatter([Hostile(), Hostile()], hash=False)
    calls = records.load(tmp_path / "run")["calls"]
    assert len(Hostile.asked) == 2 * without
    scattered = calls[calls.kind == "scatter"]
    assert scattered["keys"].tolist() == [2] and scattered.nbytes.iloc[0] > 2000


def completeness(folder: Path) -> bool | None:
    return bool(json.loads((folder / Record.FILE).read_text())["complete"])


def test_calls_say_how_many_results_were_missing(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run"):
        futures = client.map(time.sleep, [0.2, 0.2, 0.2], pure=False)
        client.gather({"all": futures})
        futures[0].result()
        client.scatter([1])
    calls = records.load(tmp_path / "run")["calls"].sort_values("start_s")
    assert calls[(calls.kind == "sync") & calls.missing.notna()].missing.tolist() == [3, 0]
    assert calls[calls.kind == "wait"].missing.tolist() == [3, 0]
    assert calls[calls.kind.isin(["gather", "scatter"])].missing.isna().all()


def test_a_record_is_complete_when_the_recorder_has_detached(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run"):
        assert completeness(tmp_path / "run") is False
        total(client)
    about = read_document(tmp_path / "run")
    assert about.complete is True
    assert about.complete_until and about.start < about.stop <= about.complete_until
    assert about.watches is False
    assert about.chunks_bytes == (tmp_path / "run" / RECORD).stat().st_size


def test_the_completeness_of_an_older_record_is_unknown(tmp_path: Path) -> None:
    old = {"form": 2, "client": "me", "start": 0.0, "stop": 1.0, "lost": {}, "failures": {}}
    (tmp_path / Record.FILE).write_text(json.dumps(old))
    (tmp_path / RECORD).touch()
    assert read_document(tmp_path).complete is None


def test_an_error_in_the_user_s_code_ends_the_recording_and_keeps_the_data(
    client: Client, tmp_path: Path
) -> None:
    before = state(client)
    with pytest.raises(ZeroDivisionError), dasklab.record(client, tmp_path / "run"):
        total(client)
        raise ZeroDivisionError
    assert state(client) == before
    assert len(records.load(tmp_path / "run")["tasks"]) == 31


def test_a_second_recorder_is_refused_and_the_first_goes_on(
    client: Client, cluster: LocalCluster, tmp_path: Path
) -> None:
    with dasklab.record(client, tmp_path / "one"), Client(cluster) as other:
        with pytest.raises(LabError, match=f"already being recorded: {client.id} of process"):
            dasklab.record(other, tmp_path / "two").__enter__()
        total(client)
    assert len(records.load(tmp_path / "one")["tasks"]) == 31


def test_what_another_client_computes_is_recorded_too(
    client: Client, cluster: LocalCluster, tmp_path: Path
) -> None:
    with dasklab.record(client, tmp_path / "run"), Client(cluster, set_as_default=False) as other:
        total(other)
        total(client)
    assert len(records.load(tmp_path / "run")["tasks"]) == 62
    assert records.load(tmp_path / "run")["graphs"].client.nunique() == 2


def test_a_recorder_whose_client_died_detaches_itself(cluster: LocalCluster, tmp_path: Path) -> None:
    with Client(cluster) as client:
        before = state(client)[:2]
        program = f"""if True:
            import os, dasklab
            from distributed import Client
            dasklab.record(Client({cluster.scheduler_address!r}), {str(tmp_path / "run")!r}).__enter__()
            os._exit(1)
        """
        died = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert died.returncode == 1, died.stderr
        eventually(lambda: state(client)[:2] == before)


def test_a_recorder_that_nobody_asks_detaches_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dasklab.records.session.LEASE_S", 0.5)
    monkeypatch.setattr("dasklab.records.session.INTERVAL_S", 3600)
    with LocalCluster(**LOCAL, processes=False) as cluster, Client(cluster) as client:
        before = state(client)[:2]
        run = dasklab.record(client, tmp_path / "run")
        run.__enter__()
        run.own_recorder.detach()  # this process is the cluster's, too
        eventually(lambda: state(client)[:2] == before)


def test_operations_are_told_apart(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run"):
        total(client, 10)
        time.sleep(0.6)
        with distributed.span("second"):
            client.submit(inc, 1, pure=False).result()
    explained = explain(open_trial(tmp_path / "run"))
    first, second, third = explained.operations
    assert [first.tasks, second.tasks, third.tasks] == [10, 1, 1]
    assert "client.map(inc, range(number)" in first.title
    assert third.title == "second" and third.start - second.stop > 0.5
    assert Path(third.code[0]).name == "test_record.py"
    own = {cause.name: s for cause, s in explained.summary.path_by_cause.items()}["user-code"]
    assert own == pytest.approx(0.6, abs=0.1)


def test_the_run_is_the_block_and_its_own_time_has_the_users_lines(client: Client, tmp_path: Path) -> None:
    total(client)  # now the workers have imported this module
    with dasklab.record(client, tmp_path / "run"):
        begin = time.time()
        time.sleep(0.6)  # opens files
        for future in as_completed(client.map(inc, range(5), pure=False)):
            future.result()
            time.sleep(0.2)
        block_s = time.time() - begin
    summary = explain(open_trial(tmp_path / "run")).summary
    assert summary.makespan_s == pytest.approx(block_s, abs=0.2)
    seconds = {
        code: length
        for (bottleneck, (file, _, code)), length in summary.client_lines.items()
        if bottleneck is USER_CODE and file == __file__
    }
    assert seconds["time.sleep(0.6) # opens files"] == pytest.approx(0.6, abs=0.2)
    assert seconds["time.sleep(0.2)"] == pytest.approx(1.0, abs=0.3)


def test_without_code_no_line_is_kept_and_keys_can_be_hashed(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run", code=False, keys="hash"):
        total(client)
    frames = records.load(tmp_path / "run")
    assert set(frames["graphs"].code) == set(frames["graphs"].file) == {""}
    content = b"".join(frame.to_json().encode() for frame in frames.values())
    assert b"inc-" not in content and Path(__file__).name.encode() not in content
    assert frames["tasks"][STAGES].notna().all(axis=None)
    assert frames["tasks"].key.str.partition("-")[0].nunique() == 2  # inc and sum remain different kinds


@pytest.mark.parametrize("processes", [True, False])
def test_workers_that_join_and_leave(processes: bool, tmp_path: Path) -> None:
    with (
        LocalCluster(**LOCAL, processes=processes) as cluster,
        Client(cluster) as client,
        dasklab.record(client, tmp_path / "run"),
    ):
        total(client)
        cluster.scale(3)
        client.wait_for_workers(3)
        total(client, 60)
        client.retire_workers(names=[0])
        total(client)
    frames = records.load(tmp_path / "run")
    workers = frames["workers"].set_index("worker")
    assert len(workers) == 3
    assert workers.joined_s.notna().sum() == 1
    assert workers.left_s.notna().sum() == 1
    assert frames["tasks"].worker.nunique() == 3
    assert frames["tasks"][STAGES].notna().all(axis=1).mean() > 0.9


def test_a_worker_that_dies_keeps_the_rest(tmp_path: Path) -> None:
    with (
        LocalCluster(**LOCAL) as cluster,
        Client(cluster) as client,
        dasklab.record(client, tmp_path / "run"),
    ):
        total(client, 60)
        victim = next(iter(cluster.workers.values()))
        victim.process.process.kill()
        total(client, 60)
    tasks = records.load(tmp_path / "run")["tasks"]
    finished = tasks[tasks.status == "OK"]  # the dead worker's attempts were released
    assert len(finished) >= 120
    assert finished.start_s.notna().all()
    assert explain(open_trial(tmp_path / "run")).summary.makespan_s > 0


def test_a_cluster_that_is_gone_keeps_what_was_fetched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalCluster(**LOCAL) as cluster:
        client = Client(cluster, timeout=2)
        with dasklab.record(client, tmp_path / "run"):
            total(client)
            time.sleep(1.5)
            cluster.close()
        client.close()
    assert len(records.load(tmp_path / "run")["tasks"]) >= 30
    assert completeness(tmp_path / "run") is False


@pytest.mark.parametrize("options", [{"protocol": "ws://"}, {"security": True}], ids=["ws", "tls"])
def test_other_transports(options: dict[str, Any], tmp_path: Path) -> None:
    with (
        LocalCluster(**LOCAL, **options) as cluster,
        Client(cluster) as client,
        dasklab.record(client, tmp_path / "run") as run,
    ):
        total(client)
        assert run.failures == {}
    assert records.load(tmp_path / "run")["tasks"][STAGES].notna().all(axis=None)


def test_an_asynchronous_client(tmp_path: Path) -> None:
    async def compute() -> None:
        async with (
            LocalCluster(**LOCAL, asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            with pytest.raises(LabError, match="this client is asynchronous"):
                dasklab.record(client, tmp_path / "no").__enter__()
            async with dasklab.record(client, tmp_path / "run"):
                assert await client.gather(client.map(inc, range(5), pure=False)) == [1, 2, 3, 4, 5]

    # not in the main thread: asyncio.run would drop a loop that an earlier test has left in it, unclosed
    thread = threading.Thread(target=asyncio.run, args=(compute(),))
    thread.start()
    thread.join()
    assert len(records.load(tmp_path / "run")["tasks"]) == 5


def test_a_client_inside_a_task(client: Client, tmp_path: Path) -> None:
    def inner(folder: str) -> int:
        import dasklab
        from distributed import get_client

        with dasklab.record(get_client(), folder):
            return int(get_client().submit(inc, 1, pure=False).result())

    assert client.submit(inner, str(tmp_path / "run"), pure=False).result() == 2
    assert "inc" in {key.partition("-")[0] for key in records.load(tmp_path / "run")["tasks"].key}


def test_a_failing_hook_is_counted_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise ValueError("as a test")

    monkeypatch.setattr("dasklab.records.recorder.scheduler.SchedulerRecorder.add_task", broken)
    monkeypatch.setattr("dasklab.records.recorder.worker.WorkerRecorder.add_needs", broken)
    with (
        LocalCluster(**LOCAL) as cluster,
        Client(cluster) as client,
        dasklab.record(client, tmp_path / "run") as run,
    ):
        assert total(client) == 465
    assert sum(count for failure, count in run.failures.items() if "as a test" in failure) >= 62


def test_from_a_shell(cluster: LocalCluster, client: Client, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dasklab", "record", cluster.scheduler_address, str(tmp_path / "run")]
    recording = subprocess.Popen([*command, "--seconds", "3"], stdout=subprocess.PIPE, text=True)
    eventually(lambda: "dasklab-recorder" in client.run_on_scheduler(changed_scheduler)["plugins"])
    total(client)
    output, _ = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 0
    assert f"dasklab explain {tmp_path / 'run'}" in output
    answer = CliRunner().invoke(main, ["explain", str(tmp_path / "run")])
    assert answer.exit_code == 0, answer.output
    assert "computing" in answer.output
    assert (tmp_path / "run" / "explain.svg").exists()


def test_a_record_that_is_cut_off_ends_the_command_with_an_error(tmp_path: Path) -> None:
    port = free_port()
    listen = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *listen],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with Client(f"tcp://127.0.0.1:{port}", timeout=PATIENCE_S, set_as_default=False):
            pass
        folder = tmp_path / "run"
        command = [sys.executable, "-m", "dasklab", "record", f"tcp://127.0.0.1:{port}", str(folder)]
        recording = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: (folder / RECORD).exists())
    finally:
        scheduler.kill()
        scheduler.wait()
    try:
        output, errors = recording.communicate(timeout=PATIENCE_S)
    finally:
        recording.kill()
    assert recording.returncode == 1 and not output and "Traceback" not in errors
    assert errors.splitlines()[-2:] == [
        f"dasklab: {folder}: the record was cut off",
        f"  dasklab explain {folder} shows what was kept of it",
    ]
    assert read_document(folder).complete is False


def test_a_folder_that_is_in_use_and_an_unknown_option_are_refused(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="is not empty"):
        dasklab.record(client, tmp_path).__enter__()
    with pytest.raises(LabError, match="keys is 'secret'; it must be one of plain, hash"):
        dasklab.record(client, tmp_path / "run", keys="secret")


def test_two_records_are_compared(client: Client, tmp_path: Path) -> None:
    for name, number in (("old", 5), ("new", 60)):
        with dasklab.record(client, tmp_path / name):
            total(client, number)
    answer = CliRunner().invoke(main, ["explain", str(tmp_path / "old"), str(tmp_path / "new"), "--json"])
    assert answer.exit_code == 0, answer.output
    assert '"breakdown"' in answer.output
    answer = CliRunner().invoke(main, ["check", str(tmp_path / "new"), "--against", str(tmp_path / "old")])
    assert answer.exit_code == 4 and "hold different work" in answer.output, answer.output


def test_clocks_are_bounded_by_messages_and_visits(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run"):
        total(client)
        time.sleep(1.2)
    clocks = explain(open_trial(tmp_path / "run")).clocks
    assert set(clocks) == {"client", "scheduler", "worker-0", "worker-1"}
    for node, clock in clocks.items():  # one machine: all clocks are one
        assert clock.low_s <= 0.001 and clock.high_s >= -0.001, node


def test_loops_memory_and_metrics_are_recorded(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run"):
        total(client)
        time.sleep(0.6)
    frames = records.load(tmp_path / "run")
    nodes = {"client", "scheduler", "worker-0", "worker-1"}
    assert set(frames["busy"].node) == nodes
    assert set(frames["cpu"].node) == nodes
    cpu: pd.DataFrame = frames["cpu"]
    assert (cpu.groupby("node").cpu_s.max() > 0).all() and (cpu.memory_bytes > 1e6).all()
    assert frames["metrics"].metric.str.startswith("execute/").any()
    assert (frames["config"].setting == "comm.compression").any()
    assert not frames["config"].setting.str.contains("environ").any()


def test_a_scheduler_and_a_worker_without_a_nanny_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    scheduler = ["distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file", str(file), *common]
    worker = ["distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny", "--name", "alone"]
    with (tmp_path / "log").open("wb") as log:
        processes = [
            subprocess.Popen([sys.executable, "-m", *argv], stdout=log, stderr=log, cwd=ROOT)
            for argv in (scheduler, [*worker, *common])
        ]
    try:
        with Client(scheduler_file=str(file), timeout=PATIENCE_S) as client:
            client.wait_for_workers(1, timeout=PATIENCE_S)
            with dasklab.record(client, tmp_path / "run") as run:
                total(client)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    tasks = records.load(tmp_path / "run")["tasks"]
    assert set(tasks.worker) == {"alone"} and tasks[STAGES].notna().all(axis=None)
    assert run.failures == {}


def test_a_cluster_that_adapts(tmp_path: Path) -> None:
    # Without nannies: on a busy machine these kill a worker that takes 4 s to close.
    with LocalCluster(**LOCAL | {"n_workers": 0}, processes=False) as cluster, Client(cluster) as client:
        cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=2)
        with dasklab.record(client, tmp_path / "run"):
            total(client)
            eventually(lambda: not client.scheduler_info()["workers"])
    frames = records.load(tmp_path / "run")
    assert frames["workers"].joined_s.notna().all() and frames["workers"].left_s.notna().all()
    assert frames["tasks"][STAGES].notna().all(axis=None)


def test_second_interrupt_while_the_block_ends_leaves_nothing_behind(client: Client, tmp_path: Path) -> None:
    """The first one ends the block; the second one comes while the rest is fetched."""
    session = dasklab.record(client, tmp_path / "first")
    waits = session._finish

    def interrupted(stopping: Any) -> None:
        interrupts = [KeyboardInterrupt()]

        def result(*timeout_s: float) -> Any:
            if interrupts:
                raise interrupts.pop()
            return stopping.result(*timeout_s)

        waits(SimpleNamespace(result=result))

    session._finish = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), session:
        total(client)
        raise KeyboardInterrupt
    assert read_document(tmp_path / "first").complete is True
    with dasklab.record(client, tmp_path / "second"):
        total(client)


def test_closed_client_is_refused_in_one_line_and_no_folder_is_made(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    client = Client(cluster)
    client.close()
    with pytest.raises(LabError, match="the client is closed"), dasklab.record(client, tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()
