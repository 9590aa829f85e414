"""No claim goes beyond the evidence: on random schedules, on stored records, and on faults made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from dasklab.breakdown.answers import summary
from dasklab.breakdown.answers.invariants import Breakdown, checked, lower
from dasklab.breakdown.answers.path.replay import Replay
from dasklab.breakdown.answers.summary import summarise
from dasklab.breakdown.assign.threads import existence
from dasklab.breakdown.model.causes import COMPUTE, PAUSED, UNDIVIDED, USER, Cause
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.excerpt import excerpt
from dasklab.breakdown.show.explain import explain
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.results.run import Trial
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import Row, by_hand, make_repeat, random_repeat, task

RECORDS = Path(__file__).parents[4] / "data" / "records"
Rows = Sequence[tuple[float, float, Cause]]


def one_thread(
    threads: Sequence[tuple[float, float, Cause]], path: Sequence[tuple[float, float, Cause]]
) -> Breakdown:
    """Return a breakdown of 10 s of one thread: intervals as start, stop and cause, all on worker-1."""
    calls = [{"kind": "sync", "start_s": 0.0, "stop_s": 0.0}]  # the client was recorded
    tasks = [task("a", "worker-1", 1, 2.0, 5.0)]
    repeat = make_repeat(tasks, threads={"worker-1": 1}, tables={"calls": calls})
    return Breakdown(repeat, _intervals(threads), _intervals(path))


def _intervals(rows: Rows) -> Intervals:
    start, stop, cause = zip(*rows, strict=True)
    place, task_row, lane = (np.full(len(rows), value) for value in (2, 0, 0))
    return Intervals(
        np.array(start), np.array(stop), np.array([c.code for c in cause]), place, task_row, lane
    )


def seconds(intervals: Intervals, cause: Cause) -> float:
    return float(intervals.seconds[intervals.is_cause(cause)].sum())


WHOLE = [(0.0, 2.0, USER), (2.0, 5.0, COMPUTE), (5.0, 10.0, USER)]


def test_true_breakdown_is_not_changed() -> None:
    breakdown, violations = lower(one_thread(WHOLE, WHOLE))
    assert not violations
    assert seconds(breakdown.path, COMPUTE) == 3.0 and not breakdown.path.is_cause(UNDIVIDED).any()


@pytest.mark.parametrize(
    ("threads", "path", "invariant", "undivided_s"),
    [
        (WHOLE, WHOLE[1:], "path-adds-up", 2.0),
        (WHOLE, [*WHOLE, (5.0, 6.0, USER)], "path-adds-up", 0.0),
        (WHOLE[:2], WHOLE, "threads-add-up", 5.0),
        (WHOLE, [(0.0, 10.0, COMPUTE)], "path-within-threads", 7.0),
        (WHOLE, [(0.0, 5.0, PAUSED), (5.0, 10.0, USER)], "place-has-evidence", 5.0),
    ],
)
def test_claim_beyond_the_evidence_is_lowered_and_counted(
    threads: Rows,
    path: Rows,
    invariant: str,
    undivided_s: float,
) -> None:
    breakdown, violations = lower(one_thread(threads, path))
    assert [violation.invariant for violation in violations] == [invariant]
    total = seconds(breakdown.path, UNDIVIDED) + seconds(breakdown.threads, UNDIVIDED)
    assert total == pytest.approx(undivided_s)
    assert lower(breakdown)[1] == []


def test_task_is_not_at_a_worker_that_did_not_run_it() -> None:
    intervals = _intervals(WHOLE)
    elsewhere = replace(intervals, place=np.where(intervals.is_cause(COMPUTE), 3, 2))
    breakdown, violations = lower(replace(one_thread(WHOLE, WHOLE), path=elsewhere))
    assert [violation.invariant for violation in violations] == ["place-has-evidence"]
    assert seconds(breakdown.path, UNDIVIDED) == pytest.approx(3.0)


def test_worker_has_nothing_on_the_path_after_it_left() -> None:
    breakdown = one_thread(WHOLE, WHOLE)
    gone = replace(breakdown, repeat=replace(breakdown.repeat, left={"worker-1": 3.0}))
    lowered, violations = lower(gone)
    assert "worker-was-there" in {violation.invariant for violation in violations}
    assert seconds(lowered.path, COMPUTE) == pytest.approx(1.0)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**9), st.booleans(), st.booleans())
def test_what_is_said_of_random_schedules_goes_beyond_no_evidence(
    seed: int, sense: bool, moves: bool
) -> None:
    repeat = random_repeat(seed, sense)
    if moves:  # a worker joins late, or leaves early
        name, third = next(iter(repeat.threads)), repeat.makespan / 3
        repeat = replace(repeat, joined={name: repeat.start + third}, left={name: repeat.stop - third})
    breakdown, violations = checked(repeat)
    assert lower(breakdown)[1] == []
    assert {"path-adds-up", "threads-add-up"}.isdisjoint(violation.invariant for violation in violations)
    assert breakdown.path.seconds.sum() == pytest.approx(repeat.makespan)
    appears, ends = existence(repeat)
    assert breakdown.threads.seconds.sum() == pytest.approx((ends - appears).sum(), abs=1e-4)
    assert all((intervals.seconds > 0).all() for intervals in (breakdown.threads, breakdown.path))


NODES = ("client", "scheduler", "worker-1", "worker-2")
CPUS = {"one": 1, "two": 4}
MOMENTS = np.arange(-2.0, 13.0)


@st.composite
def busy_machines(draw: st.DrawFn) -> tuple[Repeat, bool]:
    """Return a repeat of four processes on up to two machines, and whether their counters make sense.

    Each process is in a container of its own and looks at all CPUs of its machine.
    """
    share = st.floats(0, 0.25)
    places = {node: draw(st.sampled_from(sorted(CPUS))) for node in NODES}
    own = {node: draw(share) * CPUS[place] for node, place in places.items()}  # CPUs that it uses
    makes_sense = draw(st.booleans())
    cpu: list[Row] = []
    for node, place in places.items():
        cluster = sum(used for other, used in own.items() if places[other] == place)
        used = cluster + draw(st.floats(0, 1)) * (CPUS[place] - cluster)
        used = used if makes_sense else draw(st.sampled_from([-1.0, 3.0])) * CPUS[place]
        cpu += [
            {"node": node, "time_s": t, "cpu_s": own[node] * (t + 2), "machine_s": 1e6 + used * t}
            for t in MOMENTS
        ]
    moved = st.tuples(st.floats(0, 9), st.floats(0.01, 1), st.integers(0, 10**6))
    shards = [
        {
            "sender": "worker-1",
            "receiver": "worker-2",
            "start_s": start,
            "stop_s": start + length,
            "nbytes": size,
        }
        for start, length, size in draw(st.lists(moved, max_size=9))
    ]
    machines = [{"node": node, "machine": place, "cpus": CPUS[place]} for node, place in places.items()]
    status = st.sampled_from(["OK", "error", "rescheduled", "lost"])
    tasks = [
        task(f"load-{n % 3}", "worker-1", 1, float(n), n + 0.9) | {"status": draw(status)} for n in range(9)
    ]
    graphs = [
        {"begin_s": t, "sent_s": t, "received_s": t, "nbytes": 9.0, "tasks": 3}
        | {"materialise_s": 0.0, "order_s": 0.0, "state_s": 0.0}
        for t in sorted(draw(st.lists(st.floats(0, 9), max_size=3)))
    ]
    tables = {"cpu": cpu, "shards": shards, "machines": machines}
    return make_repeat(tasks, graphs=graphs, tables=tables), makes_sense


@settings(deadline=None, max_examples=40)
@given(busy_machines(), st.floats(0.5, 9.5))
def test_figures_can_be(run: tuple[Repeat, bool], moment: float) -> None:
    """Not more CPU than CPUs times time, not less data than was sent, no share above 100 %."""
    repeat, makes_sense = run
    for part in (repeat, excerpt(repeat, 0.0, moment), excerpt(repeat, moment, 10.0)):
        for node in range(len(NODES)):
            used_s, own_s = part.cpu_of_machine(node)
            assert np.isnan(used_s) if not makes_sense else 0 <= own_s <= used_s
            assert not used_s > part.evidence.cpu[node].cpus * part.makespan
    shares = summarise([repeat]).by_cause.values()
    assert min(shares) >= 0 and sum(shares) == pytest.approx(repeat.makespan)
    parts = (excerpt(repeat, 0.0, moment), excerpt(repeat, moment, 10.0))
    assert (
        max(part.sent_bytes for part in parts) <= repeat.sent_bytes <= sum(part.sent_bytes for part in parts)
    )
    assert repeat.sent_bytes == repeat.shards.nbytes.sum()
    tasks = repeat.tasks
    for row in repeat.repeated:
        earlier = tasks.handled[
            (tasks.key == tasks.key[row]) & tasks.has_result & (tasks.stop <= tasks.start[row])
        ]
        assert tasks.has_result[row]
        assert any(earlier.min() < graph.received <= tasks.start[row] for graph in repeat.graphs)


@pytest.mark.parametrize("folder", sorted(RECORDS.glob("*/")), ids=lambda folder: folder.name)
def test_stored_records_violate_nothing(folder: Path) -> None:
    try:
        explained = explain(Trial(folder))
    except LabError:
        pytest.skip("it cannot be explained")
    result = explained.summary
    assert result.violated == {}
    for repeat in explained.timed:
        assert lower(checked(repeat)[0])[1] == []
    assert sum(result.path.values()) == pytest.approx(result.makespan_s, abs=1e-4)


def test_shuffle_of_one_computation_repeats_nothing_and_its_data_counts() -> None:
    explained = explain(Trial(RECORDS / "merge_peer_to_peer"))
    [repeat] = explained.repeats
    assert (~repeat.tasks.has_result).sum() == 2 and not len(repeat.repeated)
    assert "the same computed again" not in {piece.rule.title for piece in explained.advice}
    assert explained.summary.moved_bytes > repeat.shards.nbytes.sum() == 1_136_040
    used_s, own_s = zip(*(repeat.cpu_of_machine(node) for node in repeat.evidence.cpu), strict=True)
    assert used_s == pytest.approx([2 * repeat.makespan] * 4, rel=0.01)  # others kept both CPUs busy
    assert own_s == pytest.approx([1.91] * 4, abs=0.01)


def test_replay_that_misses_the_run_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "replay-matches-run" not in summarise([by_hand()]).violated
    monkeypatch.setattr(summary, "replay", lambda repeat: Replay(1.11 * repeat.makespan, repeat.makespan))
    missed = summarise([by_hand()])
    assert missed.replayed is None and missed.violated["replay-matches-run"] == 1


def test_failed_attempts_are_no_time_of_the_network() -> None:
    retried = explain(Trial(RECORDS / "retries")).summary
    assert retried.replayed and not retried.violated
    assert retried.replayed.as_it_was_s - retried.replayed.without_wire_s < 0.05


def test_json_counts_violations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "replay", lambda repeat: Replay(1.5 * repeat.makespan, repeat.makespan))
    result = CliRunner().invoke(main, ["explain", str(RECORDS / "killedworker"), "--json"])
    assert json.loads(result.output.splitlines()[0])["violations"] == {"replay-matches-run": 1}
