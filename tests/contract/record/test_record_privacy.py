"""What a record of a real cluster holds with hashed keys or without code: every column of every table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dasklab
import distributed
import pytest
from click.testing import CliRunner
from dasklab import records
from dasklab.breakdown.show.explain import explain
from dasklab.cli import main
from dasklab.records import anonymize, chunks
from dasklab.records.document import RECORD, Record
from dasklab.results import pack
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster

MARKER = "vexillum"  # in any case, in whatever the user names
SETTINGS = {
    "distributed.scheduler.vexillum-apikey": "a",
    "distributed.scheduler.default-task-durations": {"vexillum": "1s"},
    "distributed.worker.passwd": "vexillum",
    "distributed.worker.preload-argv": ["--password", "vexillum"],
    "distributed.comm.tls.ca-file": "/home/vexillum/ca.pem",
}


class VexillumCounter:
    """An actor."""

    def vexillum_add(self) -> int:
        return 1


class VexillumError(Exception):
    """An error of the user's."""


PROGRAM = """
import time
from distributed import Lock

def vexillum_hold(number):
    with Lock("vexillum-lock"):
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
    return VexillumValue(number)

class VexillumValue:
    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return type(self), (self.number,)

def vexillum_sum(*values):
    return len(values)

def vexillum_sleep(seconds):
    time.sleep(seconds)

def vexillum_fail(number):
    raise ValueError("vexillum")

def vexillum_total(client):
    client.submit(vexillum_sleep, 0.6, key="vexillum-sleep").result()
    parts = client.map(vexillum_hold, range(12), key="vexillum-parts", pure=False)
    return client.submit(vexillum_sum, *parts, key=("vexillum-total", 0)).result()
"""


def compute(client: Client, folder: Path) -> None:
    """Compute with a marker in the names of file, functions, keys, spans, types, locks, actors, events."""
    names: dict[str, Any] = {"__name__": "__main__"}
    file = folder / "vexillum_program.py"
    file.write_text(PROGRAM)
    exec(compile(PROGRAM, str(file), "exec"), names)
    with distributed.span("vexillum-span"):
        assert names["vexillum_total"](client) == 12
    with pytest.raises(ValueError, match=MARKER):
        client.submit(names["vexillum_fail"], 1, key="vexillum-error").result()
    actor = client.submit(VexillumCounter, actor=True, key="vexillum-actor").result()
    assert actor.vexillum_add().result() == 1
    client.scatter({"vexillum-data": 1})
    client.log_event("all", {"action": "vexillum-event", "vexillum-detail": 1, "status": "vexillum"})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """A function that returns the record of the program with some options."""
    folder = tmp_path_factory.mktemp("vexillum")
    known: dict[str, Path] = {}
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with dask.config.set(SETTINGS), LocalCluster(**options) as cluster:

        def record(name: str, **options: Any) -> Path:
            if name not in known:
                with (
                    Client(cluster, name="vexillum-client") as client,
                    dasklab.record(client, folder / name, **options),
                ):
                    compute(client, folder)
                known[name] = folder / name
            return known[name]

        yield record


def found(record: Path, *markers: str) -> set[str]:
    """Return the places in a record where a marker stands: every column of every table, and record.json."""
    places = {"record.json"} if stands_in((record / Record.FILE).read_text(), markers) else set()
    for process, tables in chunks.read(record / RECORD)[None].items():
        kind = process if process in ("client", "scheduler") else "worker"
        if stands_in(process, markers):
            places.add("process")
        for table, frame in tables.items():
            for column in frame.columns:
                if any(stands_in(str(value), markers) for value in frame[column].unique()):
                    places.add(f"{kind}.{table}.{column}")
    return places


def stands_in(text: str, markers: tuple[str, ...]) -> bool:
    return any(marker.lower() in text.lower() for marker in markers)


def test_the_marker_reaches_all_kinds_of_columns(recorded: Callable[..., Path]) -> None:
    """The search would find what it has to: without options, all that a user names is in the record."""
    assert found(recorded("plain"), MARKER) >= {
        "record.json", "client.graphs.file", "scheduler.events.detail", "scheduler.events.kind",
        "scheduler.graphs.client", "scheduler.metrics.metric", "scheduler.results.key", "scheduler.tasks.key",
        "scheduler.tasks.span", "scheduler.tasks.type", "worker.actor_calls.actor",
        "worker.actor_calls.function", "worker.errors.key", "worker.errors.text", "worker.fetches.keys",
        "worker.metrics.metric", "worker.needs.needed", "worker.profile.stack", "worker.served.keys",
        "worker.stacks.key", "worker.stacks.stack",
        "worker.tasks.key", "worker.waits.key", "worker.waits.name",
    }  # fmt: skip


def test_no_option_records_settings_that_may_be_secret(recorded: Callable[..., Path]) -> None:
    assert not {place for place in found(recorded("plain"), MARKER) if ".config." in place}
    tables = records.load(recorded("plain"))
    assert "scheduler.worker-saturation" in set(tables["config"].setting)


def test_hashed_keys_leave_nothing_of_the_user_s_in_plain_text(recorded: Callable[..., Path]) -> None:
    assert found(recorded("hashed", keys="hash"), MARKER, Path(__file__).stem, "site-packages") == set()


def test_without_code_there_are_no_paths_and_no_texts_of_errors(recorded: Callable[..., Path]) -> None:
    record = recorded("without-code", code=False)
    assert found(record, Path(__file__).name, "vexillum_program.py", ".py:", "/site-packages") == set()
    assert not found(record, MARKER) & {"scheduler.events.detail", "client.graphs.code"}
    assert "scheduler.tasks.key" in found(record, MARKER)


def test_tasks_of_a_hashed_record_find_the_metrics_of_their_kind(recorded: Callable[..., Path]) -> None:
    tables = records.load(recorded("hashed", keys="hash"))
    metrics = tables["metrics"].metric
    assert metrics.str.endswith("/thread-cpu/seconds").any()
    prefixes = set(tables["tasks"].key.str.partition("-")[0])
    of_metrics = set(metrics[metrics.str.endswith("/thread-cpu/seconds")].str.split("/").str[-3])
    assert of_metrics & prefixes


@pytest.mark.parametrize("options", [["--hash-keys"], ["--no-code"], ["--hash-keys", "--no-code"]])
def test_a_record_that_exists_is_packed_as_if_recorded_so(
    recorded: Callable[..., Path], options: list[str], tmp_path: Path
) -> None:
    plain, file = recorded("plain"), tmp_path / "given.zip"
    answer = CliRunner().invoke(main, ["results", "pack", str(plain), "-o", str(file), *options])
    assert answer.exit_code == 0, answer.output
    given = pack.unpack(file)
    if "--hash-keys" in options:
        assert found(given, MARKER) == set()
        assert MARKER.encode() not in file.read_bytes()
    assert found(given, "vexillum_program.py", Path(__file__).name, ".py:") == set()
    assert sorted(path.name for path in given.iterdir()) == [RECORD, Record.FILE]
    before, after = explain(open_trial(plain)), explain(open_trial(given))
    assert after.summary.breakdown == pytest.approx(before.summary.breakdown, abs=1e-6)
    assert after.summary.bottlenecks == pytest.approx(before.summary.bottlenecks, abs=1e-6)
    assert [operation.tasks for operation in after.operations] == [o.tasks for o in before.operations]
    again = tmp_path / "again"
    again.mkdir()
    anonymize.anonymize(given, again, hashed="--hash-keys" in options, code=False)
    assert (again / RECORD).read_bytes() == (given / RECORD).read_bytes()  # nothing is hashed twice


def test_record_json_says_what_is_left_out(recorded: Callable[..., Path]) -> None:
    about = json.loads((recorded("hashed", keys="hash") / Record.FILE).read_text())
    assert (about["keys"], about["code"]) == ("hash", False)
    about = json.loads((recorded("plain") / Record.FILE).read_text())
    assert (about["keys"], about["code"]) == ("plain", True)
