"""The pytest fixture without a cluster: when tests pass, fail, warn or are skipped, and what it stores."""

from __future__ import annotations

import dasklab.breakdown.show.explain
import dasklab.comparison.check
import pytest

# Imported here, they stay loaded: pytester unloads what a run has loaded, and numpy cannot be loaded twice.
LOADED = (dasklab.comparison.check, dasklab.breakdown.show.explain)
pytest_plugins = ["pytester"]
CONFTEST = """
import contextlib, os
import dasklab, pytest
from dasklab.comparison import check
from dasklab.comparison.check import CheckedRecords, Verdict

@contextlib.contextmanager
def record(client, path):
    path.mkdir(parents=True)
    (path / "record.json").write_text(client)
    yield

def judge(new, old, limit_pct, if_work_differs):
    assert "--dasklab-update" in if_work_differs
    verdict = Verdict[os.environ["VERDICT"]]
    lengths = [1.0] * len(old), [1.0] * len(new)
    return CheckedRecords(verdict, 30.0, 20.0, 40.0, limit_pct, *lengths, "locks")

@pytest.fixture(autouse=True)
def without_a_cluster(monkeypatch):
    monkeypatch.setattr(dasklab, "record", record)
    monkeypatch.setattr("dasklab.breakdown.show.explain.explain", lambda path: path)
    monkeypatch.setattr(check, "check", judge)
"""
DAMAGED = """
def damaged(path):
    from dasklab.errors import LabError
    raise LabError(f"{path} is damaged")
"""
PROGRAM = """
def test_work(dasklab_check):
    calls = []
    dasklab_check("a client", lambda: calls.append(1), runs=3)
    assert len(calls) == 4
"""


@pytest.fixture
def program(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_program=PROGRAM)
    pytester.makeini("[pytest]\nfilterwarnings = default")
    return pytester


def run(
    program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, verdict: str, *options: str
) -> pytest.RunResult:
    monkeypatch.setenv("VERDICT", verdict)
    return program.runpytest_inprocess("-p", "dasklab.pytest_plugin", "-rs", *options)


def test_a_baseline_is_stored_and_replaced(program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        run(program, monkeypatch, "SLOWER", "--dasklab-update").assert_outcomes(passed=1)
        (baseline,) = (program.path / "dasklab-baselines").iterdir()
        assert baseline.name == "test_program.py-test_work"
        assert sorted(path.name for path in baseline.iterdir()) == ["1", "2", "3"]
        (baseline / "4").mkdir()  # of an older baseline, which the next one replaces


def test_another_session_is_added_to_a_baseline(
    program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in (3, 6):
        run(program, monkeypatch, "SLOWER", "--dasklab-add").assert_outcomes(passed=1)
        (baseline,) = (program.path / "dasklab-baselines").iterdir()
        assert sorted(path.name for path in baseline.iterdir()) == [str(n) for n in range(1, count + 1)]


def test_without_a_baseline_a_test_is_skipped(
    program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(program, monkeypatch, "SLOWER")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines("*dasklab-baselines*does not exist; pytest --dasklab-update stores it*")


@pytest.mark.parametrize(
    ("verdict", "outcome", "line"),
    [
        (
            "SLOWER",
            "failed",
            "slower: +30.0 % (+20.0 to +40.0 %), 3 records against 3, limit 15 %; mainly locks",
        ),
        ("NOT_SLOWER", "passed", "*1 passed*"),
        ("CANNOT_DECIDE", "passed", "*UndecidedWarning: cannot decide: *"),
    ],
)
def test_the_verdict_is_the_outcome(
    verdict: str, outcome: str, line: str, program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ("--dasklab-folder", "elsewhere")
    run(program, monkeypatch, verdict, "--dasklab-update", *folder)
    result = run(program, monkeypatch, verdict, "--dasklab-slower", "15", *folder)
    result.assert_outcomes(**{outcome: 1}, warnings=int(verdict == "CANNOT_DECIDE"))
    result.stdout.fnmatch_lines(line)


def test_damaged_baseline_fails_in_one_line(
    program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(program, monkeypatch, "NOT_SLOWER", "--dasklab-update")
    program.makeconftest(CONFTEST.replace("lambda path: path", "damaged") + DAMAGED)
    result = run(program, monkeypatch, "NOT_SLOWER")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("the baseline cannot be read: *is damaged; pytest --dasklab-update stores*")
