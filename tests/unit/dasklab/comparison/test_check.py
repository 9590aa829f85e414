"""Old and new records are compared: slower, not slower, or nobody can decide."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import COMPUTE, CPU, OUTSIDE, STARVED
from dasklab.breakdown.model.repeat import Graph
from dasklab.breakdown.prepare.operations import Operation
from dasklab.breakdown.show.explain import Explained
from dasklab.cli import main
from dasklab.comparison import check as checking
from dasklab.comparison.causes import PathSeconds
from dasklab.comparison.check import CheckedRecords, Verdict, sessions_needed, verdict
from dasklab.comparison.sessions import SESSION_SPREAD, SessionValue, difference
from dasklab.errors import LabError
from dasklab.model.forms.json_output import to_json
from dasklab.records.document import Record
from dasklab.results.run import Trial
from dasklab.results.statistics.interval import Interval

from tests.unit.dasklab.breakdown.timelines import make_repeat, task

ROOT = Path(__file__).parents[4]
CUT = Record(form=2, client="c", start=0.0, stop=1.0, lost={}, failures={}, complete=False)


def record(length: float) -> Explained:
    """A record of so many seconds, all of which one task computes."""
    row = task("spin-1", "worker-1", 1, 0.0, length, decided=0.0, handled=length)
    repeat = make_repeat([row], stop=length, threads={"worker-1": 1})
    return Explained(Trial(Path("run")), False, {}, [repeat], {}, None)


def test_twice_as_long_is_slower_and_computing_is_the_cause() -> None:
    result = checking.check([record(s) for s in (2.0, 2.1, 1.9)], [record(s) for s in (1.0, 1.05, 0.95)], 10)
    assert result.verdict is Verdict.SLOWER
    assert result.change_pct == pytest.approx(100, abs=1)
    assert str(result).startswith("slower: +100.0 % (") and re.search(
        r"mainly \+1\.00 s \(\+0\.\d\d to \+1\.\d\d\) computing", str(result)
    )


def test_the_same_work_is_not_slower() -> None:
    same = [record(s) for s in (1.0, 1.01, 0.99)]
    result = checking.check(same, same, 10)
    assert result.verdict is Verdict.NOT_SLOWER and str(result).startswith("not slower: +0.0 %")


def test_single_records_and_noisy_records_decide_nothing() -> None:
    single = checking.check([record(3.0)], [record(1.0)], 10)
    assert single.verdict is Verdict.CANNOT_DECIDE and math.isnan(single.low_pct)
    assert str(single).endswith("record at least 2 runs on each side")
    noisy = checking.check([record(s) for s in (1.0, 2.0)], [record(s) for s in (1.0, 1.9)], 100)
    assert noisy.verdict is Verdict.CANNOT_DECIDE
    assert str(noisy).endswith("sessions on each side would decide")


def stored(path: Path, content: str, **fields: object) -> Explained:
    path.mkdir()
    (path / "record.json").touch()
    (path / "record.chunks").write_text(content)
    return replace(record(1.0), trial=Trial(path), **fields)


def test_records_that_were_cut_off_decide_nothing(tmp_path: Path) -> None:
    whole, cut = stored(tmp_path / "a", "a"), stored(tmp_path / "b", "b", document=CUT)
    result = checking.check([cut], [whole], 10)
    assert result.verdict is Verdict.CANNOT_DECIDE
    assert str(result) == f"cannot decide: {tmp_path / 'b'} was cut off; record that run again"
    document = json.loads(to_json(result, CheckedRecords))
    assert document["change_pct"] is None and document["obstacle"] == result.obstacle
    full = replace(cut, document=replace(CUT, beyond_limit={"tasks": 1}))
    assert "reached its size limit; record that run again with a larger max_mb" in str(
        checking.check([whole], [full], 10)
    )


def test_the_same_record_given_twice_decides_nothing(tmp_path: Path) -> None:
    records = [stored(tmp_path / name, content) for name, content in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert f"{tmp_path / 'a'} and {tmp_path / 'c'} are the same record" in str(
        checking.check(records[:2], records[2:], 10)
    )


def test_the_same_trial_given_twice_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "record.chunks").write_text("")
    trial = replace(record(1.0), trial=Trial(tmp_path))
    assert "are the same record" in str(checking.check([trial], [trial], 10))


def test_different_work_is_compared_only_if_that_is_wanted() -> None:
    def of_tasks(number: int) -> Explained:
        explained = record(1.0)
        (repeat,) = explained.repeats
        return replace(explained, repeats=[replace(repeat, prefixes=["spin"] * number)])

    new, old = [of_tasks(2), of_tasks(2)], [of_tasks(1), of_tasks(1)]
    assert "hold different work (spin: 2 and 1 tasks)" in str(checking.check(new, old, 10))
    assert checking.check(new, old, 10, if_work_differs=None).verdict is Verdict.NOT_SLOWER


def test_slower_work_that_has_more_operations_for_that_is_the_same_work() -> None:
    """Graphs that follow each other quickly are one operation, slowly they are several."""
    (repeat,) = record(1.0).repeats
    sent = replace(repeat, graphs=[Graph(0.0, 0.0, 0.0, 1, 1, 0.0, 0.0, 0.0)] * 2)
    old = replace(record(1.0), repeats=[sent], operations=[Operation(1, "", ("", 0, ""), 0.0, 1.0, 2)])
    new = replace(old, operations=[*old.operations, replace(old.operations[0], number=2)])
    assert checking.check([new, new], [old, old], 10).verdict is Verdict.NOT_SLOWER
    other = replace(old, repeats=[replace(sent, graphs=sent.graphs[:1])])
    assert "hold different work (1 and 2 graphs)" in str(checking.check([other], [old], 10))


def test_so_many_sessions_as_are_named_would_decide() -> None:
    assert (
        sessions_needed(Interval(1.3, 1.3 / 1.5, 1.3 * 1.5), 10, [1, 1]) == 6
    )  # (ln 1.5 / ln (1.3 / 1.1))^2
    assert sessions_needed(Interval(1.1, 1.0, 1.2), 10, [1, 1]) is None
    assert sessions_needed(Interval(1.3), 10, [1, 1]) is None


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((11, 20), Verdict.SLOWER), ((-5, 10), Verdict.NOT_SLOWER), ((9, 11), Verdict.CANNOT_DECIDE)],
)
def test_the_whole_interval_decides(ends: tuple[float, float], expected: Verdict) -> None:
    change = Interval(sum(ends) / 2, *ends)
    assert verdict(change, change, 10) == (expected, "")


QUIET, LONGER, LONG = Interval(1, -2, 4), Interval(30, 25, 35), Interval(200, 150, 260)


@pytest.mark.parametrize(
    ("change", "without_cpu_wait", "expected"),
    [
        (LONGER, Interval(20, 5, 35), Verdict.SLOWER),
        (LONGER, Interval(20, -1, 41), Verdict.CANNOT_DECIDE),  # nothing may be longer but the wait
        (Interval(20, 5, 35), LONGER, Verdict.SLOWER),
        (QUIET, Interval(1, -12, 14), Verdict.NOT_SLOWER),
        (QUIET, Interval(12, -2, 26), Verdict.CANNOT_DECIDE),
    ],
)
def test_one_of_the_two_intervals_decides(
    change: Interval, without_cpu_wait: Interval, expected: Verdict
) -> None:
    assert verdict(change, without_cpu_wait, 10)[0] is expected


def test_the_length_without_the_wait_is_printed_where_it_decides() -> None:
    def line(low: float) -> str:
        without = Interval(30, 20, 40)
        return str(CheckedRecords(Verdict.SLOWER, 25, low, 45, 10, [1.0], [1.2], "", "", without))

    assert line(-9).endswith("limit 10 %; without waiting for a CPU +30.0 % (+20.0 to +40.0 %)")
    assert line(12).endswith("limit 10 %")


def test_the_wait_of_all_threads_is_taken_off_the_path() -> None:
    """The path's own tasks waited by chance: those beside it show how busy the machine was."""
    summary = Summary(1.0, 2, 1, {(STARVED, 0): 0.3, (COMPUTE, 0): 0.6}, bottlenecks={(CPU, 0): 0.5})
    assert PathSeconds.of(summary).undisturbed_s == pytest.approx(1.0 * (1 - 0.3 / 0.9))
    waiting = replace(summary, bottlenecks={(OUTSIDE, 0): 0.4})
    assert PathSeconds.of(waiting).undisturbed_s == pytest.approx(0.4 + 0.6 * (1 - 0.3 / 0.9))


@pytest.mark.parametrize(
    ("change", "without_cpu_wait", "more_cpu_wait", "expected"),
    [
        (LONG, QUIET, 0.8, (Verdict.CANNOT_DECIDE, "new")),  # the wait explains it
        (LONG, LONGER, 0.8, (Verdict.CANNOT_DECIDE, "new")),  # so may slower computing beside others
        (LONG, LONGER, 0.05, (Verdict.SLOWER, "")),
        (LONGER, LONGER, 0.0, (Verdict.SLOWER, "")),
        (QUIET, LONGER, -0.8, (Verdict.SLOWER, "")),  # the old wait hid it
        (QUIET, Interval(30, 5, 55), -0.8, (Verdict.CANNOT_DECIDE, "old")),
        (QUIET, QUIET, -0.8, (Verdict.CANNOT_DECIDE, "old")),
        (Interval(20, -40, 140), QUIET, 0.0, (Verdict.CANNOT_DECIDE, "new")),
    ],
)
def test_a_wait_for_a_cpu_decides_nothing(
    change: Interval, without_cpu_wait: Interval, more_cpu_wait: float, expected: tuple[Verdict, str]
) -> None:
    assert verdict(change, without_cpu_wait, 10, more_cpu_wait) == expected


def test_one_record_that_only_waited_for_a_cpu_does_not_prevent_a_verdict() -> None:
    def values(*paths: PathSeconds) -> list[SessionValue]:
        return [SessionValue(math.log(path.undisturbed_s), "a session") for path in paths]

    short, waiting = PathSeconds(0.25, {OUTSIDE: 0.2}), PathSeconds(0.25, {CPU: 0.25}, 1.0)
    long = PathSeconds(3.05, {OUTSIDE: 3.0})
    estimate = difference(values(long, long, long, long), values(waiting, short, short, short), 0.02)
    assert estimate.value - estimate.margin > math.log(2)


def sessions(between: float, within: float, number: int, chance: random.Random) -> list[SessionValue]:
    rows = []
    for session in range(number):
        mean = chance.gauss(0, between)
        rows += [SessionValue(chance.gauss(mean, within), str(session)) for _ in range(5)]
    return rows


@pytest.mark.parametrize(("between", "number"), [(0.02, 1), (0.02, 3), (0.06, 4), (0.1, 8)])
def test_the_interval_covers_the_variation_between_sessions(between: float, number: int) -> None:
    """From the spread within sessions alone, most would miss zero; from few noisy sessions, 12 % do."""
    chance = random.Random(1)
    missed = 0
    for _ in range(1000):
        new, old = sessions(between, 0.01, 1, chance), sessions(between, 0.01, number, chance)
        estimate = difference(new, old, SESSION_SPREAD)
        missed += abs(estimate.value) > estimate.margin
    assert missed / 1000 < 0.14


@pytest.mark.parametrize("kind", list(Verdict))
def test_the_exit_status_is_the_verdict(
    kind: Verdict, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ends = (math.nan, math.nan) if kind is Verdict.CANNOT_DECIDE else (1.0, 5.0)
    monkeypatch.setattr("dasklab.breakdown.show.explain.explain", lambda path: path)
    monkeypatch.setattr(
        checking,
        "check",
        lambda new, old, limit, remedy: CheckedRecords(kind, 3.0, *ends, limit, [1.0], [1.0], "a cause"),
    )
    folders = [str(tmp_path), "--against", str(tmp_path)]
    result = CliRunner().invoke(main, ["check", *folders, "--slower", "2.5%", "--json"])
    assert result.exit_code == kind.value
    document = json.loads(result.output)
    assert (document["verdict"], document["limit_pct"]) == (kind.name.lower(), 2.5)
    assert (document["low_pct"] is None) == (kind is Verdict.CANNOT_DECIDE)


@pytest.mark.parametrize(
    ("limit", "why"), [("-1", "negative"), ("much", "not a percentage"), ("inf%", "infinite")]
)
def test_a_limit_that_is_no_percentage_is_refused(limit: str, why: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--against", str(tmp_path), "--slower", limit])
    assert result.exit_code == 2 and why in result.output


def test_a_record_that_cannot_be_read_is_not_called_slower(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--against", str(tmp_path)])
    assert result.exit_code == 3 and str(tmp_path) in result.output


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "record.json"), LabError("damaged")]
)
def test_no_failure_to_read_is_called_slower(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> Explained:
        raise error

    monkeypatch.setattr("dasklab.breakdown.show.explain.explain", fail)
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--against", str(tmp_path)])
    assert result.exit_code == 3
