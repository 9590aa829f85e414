"""Which workers came and went, in words."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.breakdown.answers.facts.failures import Failures
from dasklab.breakdown.prepare.deaths import Death
from dasklab.breakdown.show.changes import change_sentences

from tests.unit.dasklab.breakdown.timelines import make_repeat

DEATH = Death(2.2, "worker-1", 0.0, 0.0, None, None)


def stay(worker: str, joined: float | None = None, left: float | None = None) -> dict[str, Any]:
    return {"worker": worker, "threads": 1, "joined_s": joined, "left_s": left}


@pytest.mark.parametrize(
    ("stays", "failures", "sentences"),
    [
        (
            [stay("worker-1", 1.6, 2.2), stay("worker-1", 3.9, 9.0)],
            Failures(),
            ["worker-1 joined 1.6", "worker-1 left 2.2", "worker-1 joined 3.9", "worker-1 left 9.0"],
        ),
        (
            [stay("worker-1", None, 2.2), stay("worker-1", 3.9)],
            Failures(deaths=[DEATH]),
            ["worker-1 joined 3.9"],
        ),
        (
            [stay("worker-1", 1.0), stay("worker-2", 1.5), stay("worker-3", 4.0)],
            Failures(),
            ["worker-1 and worker-2 joined 1.0 to 1.5", "worker-3 joined 4.0"],
        ),
    ],
    ids=["comes twice", "dies and comes back", "come together"],
)
def test_each_coming_and_going_has_a_sentence(
    stays: list[dict[str, Any]], failures: Failures, sentences: list[str]
) -> None:
    threads = {row["worker"]: 1 for row in stays}
    repeat = make_repeat(threads=threads, tables={"workers": stays})
    expected = [f"{sentence} s after the start." for sentence in sentences]
    assert [*map(str, change_sentences(repeat, failures))] == expected


def test_many_comings_and_goings_are_one_sentence() -> None:
    stays = [stay("worker-1", float(n), n + 0.5) for n in range(1, 9)]
    repeat = make_repeat(threads={"worker-1": 1}, tables={"workers": stays})
    assert [*map(str, change_sentences(repeat, Failures()))] == ["Workers joined 8 times and left 8 times."]
