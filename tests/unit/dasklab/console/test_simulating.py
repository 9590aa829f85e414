"""The progress of simulations: their number, and a time left that follows from those that are done."""

from __future__ import annotations

from itertools import count

from dasklab.console.simulating import Simulating


def shown(total: int, number: int) -> list[str]:
    """Return what is shown of simulations that take 10 s each."""
    texts: list[str] = []
    seconds = count(0, 10)
    progress = Simulating(texts.append, total, lambda: next(seconds))
    for _ in range(number):
        progress.report(None)
    return texts


def test_time_left_follows_from_what_is_done() -> None:
    assert shown(4, 4) == [
        "1 of 4 simulations, about 30 s left",
        "2 of 4 simulations, about 20 s left",
        "3 of 4 simulations, about 10 s left",
        "4 of 4 simulations, about 0 s left",
    ]


def test_without_a_total_nothing_is_promised() -> None:
    assert shown(0, 2) == ["1 simulation", "2 simulations"]


def test_announced_simulations_do_not_count_those_before() -> None:
    texts: list[str] = []
    seconds = count(0, 10)
    progress = Simulating(texts.append, 0, lambda: next(seconds))
    progress.report(None)
    progress.expect(2)
    progress.report(None)
    assert texts[-2:] == ["0 of 2 simulations", "1 of 2 simulations, about 10 s left"]
