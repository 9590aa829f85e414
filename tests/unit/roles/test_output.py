"""The output of a playbook: each reason of a failure once, with its hosts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.unit.roles.conftest import load


@pytest.fixture(scope="module")
def output() -> ModuleType:
    return load("playbooks/callback_plugins/dasklab.py")


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        ({"msg": "the cable is out\n"}, ["the cable is out"]),
        ({"msg": "non-zero return code", "stderr": "tc: no\n", "stdout": "[]"}, ["tc: no"]),
        # over ssh with a terminal, everything is on stdout
        (
            {
                "msg": "non-zero return code",
                "stderr": "Shared connection to h closed.\n",
                "stdout": "tc: no\n",
            },
            ["tc: no"],
        ),
        ({"msg": "twice", "stderr": "twice\n\n"}, ["twice"]),
        ({}, ["no reason given"]),
        (
            {
                "msg": "One or more items failed",
                "results": [{"msg": "fine"}, {"msg": "no lab", "failed": True}],
            },
            ["no lab"],
        ),
    ],
)
def test_reason_is_the_message_of_the_module_or_of_its_command(
    output: ModuleType, result: dict[str, Any], lines: list[str]
) -> None:
    assert output.reason(result) == lines


def test_hosts_are_sorted_by_number_and_at_most_eight_are_named(output: ModuleType) -> None:
    assert (
        output.Failure([], ["worker-10", "worker-9", "client"]).host_names() == "client, worker-9, worker-10"
    )
    many = output.Failure([], [f"worker-{n}" for n in range(1, 201)]).host_names()
    assert many.startswith("worker-1, worker-2, ")
    assert many.endswith(", worker-8 and 192 more")


def test_repeated_reason_is_recognized(output: ModuleType) -> None:
    known = ["tc: no netem", "its disk is full"]
    assert output.repeats("worker-1: Impair the lab link: tc: no netem", known)
    assert output.repeats("unsupported: tc: no netem", known)
    assert not output.repeats("tc: no netem here", known)
    assert not output.repeats("no netem", known)


def test_time_left_follows_the_plays_and_never_rises(output: ModuleType) -> None:
    """Role base comes once for each role; the estimate went 0:18, 0:02, 0:01, 0:14, 0:01, 0:10."""
    tasks = [("base", 1.0), ("guest", 8.0), ("base", 1.0), ("netem", 7.0), ("base", 1.0), ("dask", 10.0)]
    past = output.Past(tasks)
    left_s = []
    for title in ("base", "new", "guest", "base", "netem", "base", "dask", "base"):
        past.advance_to(title)
        left_s.append(past.left_s())
    assert left_s == [27, 27, 19, 18, 11, 10, 0, 0]


def test_skipped_tasks_shorten_the_time_left(output: ModuleType) -> None:
    past = output.Past([("a", 1.0), ("b", 20.0), ("c", 3.0)])
    past.advance_to("a")
    past.advance_to("c")
    assert past.left_s() == 0
