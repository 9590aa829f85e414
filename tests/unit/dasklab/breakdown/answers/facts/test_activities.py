"""What late event loops and waiting tasks were doing is said where most samples agree."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.breakdown.answers.facts.activities import activities, lag_activity, own_code
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.model.causes import LAG
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.activities import activity_sentences
from dasklab.breakdown.show.why import of_stacks

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task

LIBRARY = "/venv/lib/python3.12/site-packages"
RUN = f"run ({LIBRARY}/distributed/worker.py:3014)"
SLEEP = [f"execute ({LIBRARY}/dask/_task_spec.py:7)", "write.<locals>.rest (/me/prog.py:9)"]


def samples(count: int, word: str = "", first: float = 1.0, **more: Any) -> list[Row]:
    """Samples that are 0.1 s apart, of an event loop if nothing else is said."""
    row = {"node": "worker-1", "seconds": 0.1, "reason": "blocked", "key": "", "name": "", "stack": []}
    return [row | {"activity": word} | more | {"time_s": first + n / 10} for n in range(count)]


def repeat_of(*groups: list[Row], length: float = 2.0) -> Repeat:
    """A repeat of 10 s with some tasks ``write``, and samples."""
    tasks = [task(f"write-{n}", "worker-1", n, 1.0, 1.0 + length) for n in range(2)]
    rows = [row for group in groups for row in group]
    return make_repeat(tasks, tables={"stacks": rows}, threads={"worker-1": 2, "worker-2": 2})


@pytest.mark.parametrize(
    ("groups", "busy", "word"),
    [
        ([samples(9, "spill")], (1.0, 7.0), "spill"),
        ([samples(9, "spill")], (1.0, 4.0), ""),
        ([samples(9, "spill", node="worker-2")], (1.0, 7.0), ""),
        ([samples(5, "spill"), samples(5, "import", first=3.0)], (1.0, 7.0), ""),
        ([samples(9)], (1.0, 7.0), ""),
    ],
    ids=["all the time", "half of the time", "elsewhere", "several things", "without a word"],
)
def test_what_blocked_the_loop_that_the_path_waited_for(
    groups: list[list[Row]], busy: tuple[float, float], word: str
) -> None:
    """The task could run at 1 s, and ran at 7 s."""
    row = task("f-1", "worker-1", 1, 7.0, 9.0, decided=0.5, arrived=0.9, ready=1.0, executing=7.0)
    rows = [row for group in groups for row in group]
    repeat = make_repeat([row], busy={"worker-1": [busy]}, tables={"stacks": rows})
    path = critical_path(repeat)
    assert path.seconds[path.is_cause(LAG)].sum() == pytest.approx(6.0, abs=0.2)
    assert lag_activity(repeat, path) == word


WAITING = {"reason": "waiting", "key": "write-1"}
HELD = {
    "reason": "held",
    "key": "write-1",
    "seconds": 0.6,
    "stack": ["f.<locals>.<listcomp> (/me/prog.py:4)"],
}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (
            [samples(9, "import", name="pandas"), samples(2, first=5.0, stack=SLEEP)],
            "The event loop of worker-1 was blocked for about 1.1 s by importing pandas, in 9 of 11 samples.",
        ),
        ([samples(9, "import", name="pandas"), samples(5, first=5.0, stack=SLEEP)], ""),
        ([samples(2, "sizeof")], ""),
        ([samples(9, "sizeof", 20.0)], ""),
        (
            [samples(5, "sizeof"), samples(6, "sizeof", node="worker-2")],
            "The event loops of worker-2 and worker-1 were blocked for up to 0.6 s by measuring the size of a"
            " result (`__sizeof__`), in 11 of 11 samples.",
        ),
        (
            [samples(5, "unpickle", stack=["Model.__setstate__ (/me/model.py:3)"])],
            "The event loop of worker-1 was blocked for about 0.5 s by unpickling in Model.__setstate__"
            " (model.py), in 5 of 5 samples.",
        ),
        (
            [samples(5, stack=[RUN])],
            "The event loop of worker-1 was blocked for about 0.5 s by client.run, in 5 of 5 samples.",
        ),
        ([samples(5)], ""),
        (
            [samples(4, "lock", name="RLock", **WAITING), samples(6, "", 2.0, stack=SLEEP, **WAITING)],
            "Tasks write waited for a lock of their process (RLock), in 4 of 10 samples.",
        ),
        (
            [samples(4, stack=SLEEP, **WAITING)],
            "Tasks write waited in rest (prog.py), in 4 of 4 samples.",
        ),
        (
            [samples(1, **HELD)],
            "Tasks write kept the interpreter in f (prog.py), in calls that do not release it, in 1 of 1"
            " sample.",
        ),
    ],
    ids=[
        "import", "no agreement", "few samples", "after the repeat", "two loops", "unpickle", "client.run",
        "nothing of the user's", "a lock that some hold", "function", "the interpreter",
    ],
)  # fmt: skip
def test_what_samples_agree_on_is_said(groups: list[list[Row]], expected: str) -> None:
    repeat = repeat_of(*groups)
    assert [*map(str, activity_sentences(repeat))] == [*filter(None, [expected])]
    assert bool(of_stacks(repeat).items) == bool(expected)


def test_short_tasks_are_sampled_at_their_ends_only_so_nothing_is_said() -> None:
    assert activities(repeat_of(samples(9, stack=SLEEP, **WAITING), length=0.1)) == []


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (
            ["main (/me/prog.py:1)", "get (/venv/lib/python3.12/site-packages/requests/api.py:9)"],
            "get (api.py)",
        ),
        (["main (/me/prog.py:1)", "wait (/usr/lib/python3.12/threading.py:9)"], "main (prog.py)"),
        (["main (/me/prog.py:1)", f"dumps ({LIBRARY}/cloudpickle/cloudpickle.py:9)"], "main (prog.py)"),
        (["main", "wait"], ""),
    ],
    ids=["library", "standard library", "Dask's pickle", "without code"],
)
def test_code_is_the_innermost_function_of_the_user_or_a_library(frames: list[str], code: str) -> None:
    assert own_code(frames) == code
