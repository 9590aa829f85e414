"""The pytest plugin on a real cluster: baselines are stored, and slower work fails."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
PROGRAM = """
import os, time
import pytest
from distributed import Client, LocalCluster

@pytest.fixture
def client():
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client

def test_work(client, dasklab_check):
    calls = iter(range(1000))
    def work():
        lengths = [float(text) for text in os.environ["LENGTHS"].split()]
        client.submit(time.sleep, lengths[next(calls) % len(lengths)], pure=False).result()
    dasklab_check(client, work, runs=4)
"""


@pytest.fixture
def program(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_program=PROGRAM)
    pytester.makeini("[pytest]")
    return pytester


def run(
    program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, lengths: str, *options: str
) -> pytest.RunResult:
    monkeypatch.setenv("LENGTHS", lengths)
    argv = ["-p", "dasklab.pytest_plugin", "-p", "no:cacheprovider", "-rs", "--dasklab-slower", "100"]
    return program.runpytest_subprocess(*argv, *options)


def test_a_baseline_is_stored_and_slower_work_fails(
    program: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = run(program, monkeypatch, "0.2")
    missing.assert_outcomes(skipped=1)
    missing.stdout.fnmatch_lines("*does not exist; pytest --dasklab-update stores it*")

    run(program, monkeypatch, "0.2", "--dasklab-update").assert_outcomes(passed=1)
    (baseline,) = (program.path / "dasklab-baselines").iterdir()
    assert baseline.name == "test_program.py-test_work"
    assert sorted(path.name for path in baseline.iterdir()) == ["1", "2", "3", "4"]

    run(program, monkeypatch, "0.2").assert_outcomes(passed=1)
    slower = run(program, monkeypatch, "3")
    slower.assert_outcomes(failed=1)
    slower.stdout.fnmatch_lines("slower: +* %*4 records against 4, limit 100 %*")

    undecided = run(program, monkeypatch, "0.1 1.0")
    undecided.assert_outcomes(passed=1, warnings=1)
    undecided.stdout.fnmatch_lines("*UndecidedWarning: cannot decide: *records against*")

    run(program, monkeypatch, "3", "--dasklab-update").assert_outcomes(passed=1)
    run(program, monkeypatch, "3").assert_outcomes(passed=1)
