"""Perfetto's form of a trace, read back: slices nest, arrows go from task to transfer to task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.breakdown.show.trace.perfetto import write
from dasklab.cli import main
from dasklab.results.run import Trial, open_trial

from tests.perfetto_trace import Slice, Trace
from tests.unit.dasklab.breakdown.timelines import by_hand, random_repeat
from tests.unit.dasklab.stored_run import TRIAL, previous_run


def traced(repeat: Repeat, folder: Path) -> Trace:
    write(Explained(Trial(folder), False, {}, [repeat], {}, pd.DataFrame()), folder / "trial.pftrace")
    return Trace(folder / "trial.pftrace")


def test_arrows_lead_from_the_task_through_the_transfer_to_its_dependent(tmp_path: Path) -> None:
    trace = traced(by_hand(), tmp_path)
    assert set(trace.processes.values()) == {"critical path", "scheduler", "worker-1", "worker-2"}
    (made, brought), (moved, needed) = trace.arrows()
    assert (made.track, made.name, made.arguments) == ("worker-1/thread 1", "a", {"key": "a"})
    assert brought is moved
    assert (moved.track, moved.name, moved.category) == (
        "worker-2/transfers to it",
        "from worker-1",
        "transfer",
    )
    assert moved.arguments == {"keys": "a", "number of keys": 1, "bytes": 8}
    assert (needed.track, needed.name) == ("worker-2/thread 1", "b")
    assert [(one.start, one.stop) for one in (made, moved, needed)] == [
        (1_000_000_000, 3_000_000_000), (4_600_000_000, 7_400_000_000), (8_000_000_000, 9_000_000_000),
    ]  # fmt: skip


def test_stages_of_a_transfer_lie_inside_of_it_without_gaps(tmp_path: Path) -> None:
    trace = traced(by_hand(), tmp_path)
    [transfer] = [one for one in trace.slices if one.category == "transfer"]
    stages = [one for one in trace.slices if one.inside is transfer]
    assert {one.name for one in stages} >= {
        "waiting for data: on the wire",
        "serialising and deserialising data",
    }
    ends = [transfer.start, *(one.stop for one in stages)]
    assert [one.start for one in stages] == ends[:-1] and ends[-1] == transfer.stop


def outer(slices: list[Slice], track: str) -> list[Slice]:
    return [one for one in slices if one.track == track and one.inside is None]


@pytest.mark.parametrize("seed", range(20))
def test_threads_are_covered_once_and_slices_nest(seed: int, tmp_path: Path) -> None:
    repeat = random_repeat(seed, sense=True)
    trace = traced(repeat, tmp_path)
    for one in trace.slices:
        assert 0 <= one.start <= one.stop
        if one.inside:
            assert one.inside.start <= one.start and one.stop <= one.inside.stop
    threads = [track for track in trace.tracks.values() if "/thread" in track]
    assert len(threads) == len(repeat.thread_rows[1])
    seconds = sum(one.stop - one.start for track in threads for one in outer(trace.slices, track)) / 1e9
    assert seconds == pytest.approx(float(break_down(repeat).seconds.sum()), abs=1e-5)
    tasks = [one for one in trace.slices if one.category == "task"]
    keys = [one.arguments["key"] for one in tasks]
    assert len(keys) == len(set(keys)) <= len(repeat.tasks)
    for begin, end in trace.arrows():
        assert {begin.category, end.category} == {"task", "transfer"}


def test_no_slice_is_before_zero_although_a_loop_was_busy_before_the_run(tmp_path: Path) -> None:
    trace = traced(by_hand(busy={"scheduler": [(-1.0, 1.0)]}), tmp_path)
    [busy] = [one for one in trace.slices if one.track == "scheduler/event loop"]
    assert (busy.start, busy.stop) == (0, 2_000_000_000)


@pytest.mark.parametrize("seed", range(10))
def test_stamps_without_sense_give_a_trace_that_can_be_read(seed: int, tmp_path: Path) -> None:
    trace = traced(random_repeat(seed, sense=False), tmp_path)
    assert all(0 <= one.start <= one.stop for one in trace.slices)


def test_stored_trial_has_metadata_and_names_of_kinds(tmp_path: Path) -> None:
    trial = previous_run(tmp_path) / TRIAL
    write(explain(open_trial(trial)), tmp_path / "trial.pftrace")
    trace = Trace(tmp_path / "trial.pftrace")
    assert trace.metadata["experiment"] == "baseline" and trace.metadata["cell"]
    assert trace.metadata["dask"] and trace.metadata["repeats"].startswith("1: ")
    names = {one.name for one in trace.slices if one.category == "task"}
    assert "sum" in {name.split("-")[0] for name in names}
    assert not any(char.isdigit() for name in names for char in name[-8:]), names  # no tokens
    assert {begin.category for begin, _ in trace.arrows()} == {"task", "transfer"}
    assert {track.split("/")[0] for track in trace.counters} >= {"worker-1", "worker-2", "worker-3"}


class Captured:
    """What packets showed: three messages, of which two overlap, and the rates of two seconds."""

    def __init__(self, start: float) -> None:
        def message(begin: float, end: float, target: str) -> dict[str, Any]:
            times = {"time_ns": int(1e9 * (start + begin)), "end_ns": int(1e9 * (start + end))}
            return times | {"source": "scheduler", "destination": target, "op": "compute-task", "bytes": 70}

        rate = {"source": "scheduler", "destination": "worker-1"}
        self.tables: dict[str, list[dict[str, Any]]] = {
            "messages": [message(1, 2, "worker-1"), message(1.5, 3, "worker-2"), message(4, 5, "worker-1")],
            "series": [rate | {"second": int(start) + n, "ip_bytes": 1e6 * (n + 1)} for n in range(2)],
        }

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.tables[name]


def test_messages_of_a_capture_lie_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dasklab.results.recording.read", lambda directory: Captured(0.0))
    write(Explained(Trial(tmp_path), True, {}, [by_hand()], {}, pd.DataFrame()), tmp_path / "trial.pftrace")
    trace = Trace(tmp_path / "trial.pftrace")
    messages = [one for one in trace.slices if one.category == "message"]
    assert [(one.name, one.start / 1e9, one.stop / 1e9) for one in messages] == [
        ("to worker-1: compute-task", 1, 2),
        ("to worker-2: compute-task", 1.5, 3),
        ("to worker-1: compute-task", 4, 5),
    ]
    assert {one.track for one in messages} == {"packets/messages of scheduler"}
    assert all(one.inside is None for one in messages)  # on tracks of their own
    assert trace.counters["packets/scheduler to worker-1"] == [8, 16]


def test_json_is_refused_before_the_work(tmp_path: Path) -> None:
    trial = previous_run(tmp_path) / TRIAL
    result = CliRunner().invoke(main, ["explain", str(trial), "--trace", str(tmp_path / "trace.json")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "traces are written in Perfetto's format only; name it trace.pftrace" in result.stderr
    assert not (tmp_path / "trace.json").exists()
