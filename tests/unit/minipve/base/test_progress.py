"""The progress of long work: steps, time left, output."""

from __future__ import annotations

import io

import pytest
from minipve.base.process import Steps, terminal


def test_progress_over_several_steps() -> None:
    calls: list[tuple[str, float]] = []
    steps = Steps(one=1, two=3)
    with steps.run(lambda what, fraction, _left: calls.append((what, fraction))) as step:
        with step("one", "first") as within:
            within("half", 0.5, None)
        with step("two", "second"):
            pass
    assert calls[:3] == [("first", 0.0), ("first", 0.125), ("second", 0.25)]
    assert calls[-1][1] == 1.0


@pytest.mark.parametrize(("done_s", "elapsed_s", "left_s"), [(0, 0, 4), (2, 2, 2), (2, 6, 6), (0.1, 3, 3.9)])
def test_time_left_depends_on_the_measured_pace(done_s: float, elapsed_s: float, left_s: float) -> None:
    assert Steps(one=1, two=3).left_s(done_s, elapsed_s) == pytest.approx(left_s)


def test_one_line_per_step_without_a_terminal() -> None:
    stream = io.StringIO()
    show = terminal(stream)
    for fraction in (0.1, 0.2, 0.3):
        show("installing Debian", fraction, 9.0)
    assert stream.getvalue() == "golden image: installing Debian\n"
