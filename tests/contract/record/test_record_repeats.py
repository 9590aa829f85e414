"""A session that holds back what it records while repeats are timed, as the lab's workloads use it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from dasklab import records
from dasklab.errors import LabError
from dasklab.records.document import Record, RecordedRepeat, read_document
from dasklab.records.session import Session
from distributed import Client, LocalCluster

from tests.contract.record.clusters import LOCAL

TASKS = {0: 21, 1: 31, 2: 31}  # of each repeat


def inc(number: int, seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return number + 1


def compute(client: Client, number: int, seconds: float = 0.0) -> int:
    parts = client.map(inc, range(number), seconds=seconds, pure=False)
    return int(client.submit(sum, parts, pure=False).result())


@pytest.fixture(scope="module")
def record(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warm-up and two timed repeats. Before them and after them something else is computed."""
    folder = tmp_path_factory.mktemp("trial") / "record"
    with Client(cluster) as client, Session(client, folder, hold=True) as session:
        compute(client, 5)
        session.collect()
        for number, tasks in TASKS.items():
            start = time.time()
            compute(client, tasks - 1, seconds=0.02)
            session.collect(RecordedRepeat(number, number == 0, start, time.time()))
        compute(client, 5)
    return folder


def test_each_repeat_has_its_own_rows(record: Path) -> None:
    frames = records.load(record)
    repeats = frames["repeats"]
    assert repeats.repeat.tolist() == list(TASKS)
    assert repeats.warmup.tolist() == [True, False, False]
    assert repeats.lost.tolist() == [0, 0, 0]
    assert frames["tasks"].groupby("repeat").size().to_dict() == TASKS
    tasks = frames["tasks"].merge(
        repeats[["repeat", "start_s", "stop_s"]], on="repeat", suffixes=("", "_repeat")
    )
    assert (
        (tasks.start_s > tasks.start_s_repeat) & (tasks.stop_s < tasks.stop_s_repeat)
    ).all()  # one clock here
    graphs = frames["graphs"]
    assert graphs.groupby("repeat").size().to_dict() == {0: 2, 1: 2, 2: 2}
    assert (graphs.begin_s <= graphs.received_s).all()
    assert set(frames["calls"].repeat) == set(TASKS)


def test_each_repeat_knows_the_workers_and_what_they_are(record: Path) -> None:
    frames = records.load(record)
    for table in ("workers", "interfaces", "cpu", "delays", "metrics", "bandwidths"):
        if len(frames[table]):
            assert set(frames[table].repeat) == set(TASKS), table
    workers = frames["workers"]
    assert workers.groupby("repeat").size().to_dict() == {0: 2, 1: 2, 2: 2}
    assert workers.joined_s.isna().all() and workers.loop.notna().all()
    config = frames["config"]
    assert not config.duplicated().any() and (config.setting == "comm.compression").any()


def test_cpu_is_sampled_around_each_repeat(record: Path) -> None:
    frames = records.load(record)
    ends = frames["cpu"].groupby(["repeat", "node"]).time_s.agg(["min", "max"]).reset_index("node")
    around = frames["repeats"].set_index("repeat").join(ends)
    around = around[around.node != "client"]
    assert len(around) == 3 * len(TASKS)
    assert ((around["min"] < around.start_s) & (around["max"] > around.stop_s)).all()


def test_document_lists_the_repeats(record: Path) -> None:
    about = read_document(record)
    assert [repeat.number for repeat in about.repeats] == list(TASKS)
    assert about.complete and not about.failures


def test_nothing_is_fetched_while_a_repeat_lasts(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dasklab.records.session.INTERVAL_S", 0.05)
    monkeypatch.setattr("dasklab.records.session.LEASE_S", 0.1)  # shorter than the repeat
    fetches = []
    with Client(cluster) as client, Session(client, tmp_path / "run", hold=True) as session:
        assert cluster.scheduler is not None
        handlers = cluster.scheduler.handlers
        take = handlers["dasklab_take"]

        def counted(**options: object) -> object:
            fetches.append(options)
            return take(**options)

        monkeypatch.setitem(handlers, "dasklab_take", counted)
        start = time.time()
        scattered = client.scatter(list(range(10)))
        client.submit(sum, scattered).result()
        compute(client, 40, seconds=0.02)
        assert not fetches
        session.collect(RecordedRepeat(1, False, start, time.time()))
        assert fetches
    frames = records.load(tmp_path / "run")
    assert len(frames["tasks"]) == 42
    scatter = frames["calls"][frames["calls"].kind == "scatter"]
    assert scatter.nbytes.gt(0).all() and len(scatter) == 1  # asked for afterwards


def test_worker_that_leaves_is_not_in_later_repeats(tmp_path: Path) -> None:
    with LocalCluster(**LOCAL) as cluster, Client(cluster) as client:
        with Session(client, tmp_path / "run", hold=True) as session:
            for number in range(3):
                start = time.time()
                compute(client, 10)
                if number == 1:
                    client.retire_workers(list(client.scheduler_info()["workers"])[:1])
                session.collect(RecordedRepeat(number, False, start, time.time()))
        workers = records.load(tmp_path / "run")["workers"]
    assert workers.groupby("repeat").size().to_dict() == {0: 2, 1: 2, 2: 1}
    assert workers[workers.left_s.notna()].repeat.tolist() == [1]


def test_record_of_an_unknown_format_is_refused(record: Path, tmp_path: Path) -> None:
    for file in record.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    document = tmp_path / Record.FILE
    document.write_text(json.dumps(json.loads(document.read_text()) | {"form": 99}))
    with pytest.raises(LabError, match="another version of dasklab"):
        records.load(tmp_path)
