"""How many stacks are sampled, and what is seen in one."""

from __future__ import annotations

import pickle
import sys
import threading
from itertools import pairwise
from pathlib import Path

from dasklab.breakdown.answers.facts.activities import own_code
from dasklab.records.recorder.stacks import (
    BY_VALUE,
    INTERVAL_S,
    MOST_A_MINUTE,
    Budget,
    activity_of,
    own_frames,
    stack_texts,
)
from distributed.spill import SpillBuffer


def test_samples_of_a_minute_are_limited_and_become_rarer() -> None:
    budget, taken = Budget(), []
    for tick in range(int(180 / INTERVAL_S)):
        now = 1000 + tick * INTERVAL_S
        if budget.interval_s(now):
            budget.taken.append(now)
            taken.append(now)
    gaps = [later - earlier for earlier, later in pairwise(taken)]
    assert min(gaps) > 0.99 * INTERVAL_S  # at most 20 a second
    assert max(sum(start <= time < start + 60 for time in taken) for start in taken) <= MOST_A_MINUTE
    assert taken[MOST_A_MINUTE - 1] - taken[0] > 10  # the first seconds do not use them up


def test_a_with_statement_that_waits_enters_a_lock() -> None:
    lock, started = threading.Lock(), threading.Event()

    def wait() -> None:
        started.set()
        with lock:
            pass

    with lock:
        thread = threading.Thread(target=wait)
        thread.start()
        started.wait()
        while True:
            frame = sys._current_frames()[thread.ident or 0]
            if frame.f_code is wait.__code__ and activity_of([frame], waits=True).word == "lock":
                break
        assert activity_of([frame], waits=False).word == ""  # who uses a CPU waits for no lock
        assert stack_texts([frame])[0].startswith(f"{wait.__qualname__} ({__file__}:")
    thread.join()


def test_code_that_came_by_value_is_named_by_its_module() -> None:
    """cloudpickle 3.1.3 forgets the file: the recorder's own code must not pass for the user's."""
    names = {"__name__": "dasklab.records.recorder.base", "_getframe": sys._getframe}
    exec(compile("def harmless():\n    return _getframe()", BY_VALUE, "exec"), names)
    text = stack_texts([names["harmless"]()])
    assert text == ["harmless (dasklab/records/recorder/base.py:2)"]
    assert own_code(["train (/me/model.py:3)", *text]) == "train (model.py)"


class Looking:
    """What looks at the stack while it is pickled."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        SEEN.append(activity_of([*own_frames(sys._getframe())]).word)
        return int, (1,)


SEEN: list[str] = []


def test_what_is_written_to_disk_is_spilled_and_what_is_only_pickled_is_not(tmp_path: Path) -> None:
    SEEN.clear()
    results = SpillBuffer(str(tmp_path), target=100)
    results["a"] = [Looking(), *range(1000)]
    assert "a" in results.disk
    assert set(SEEN) == {"spill"}
    SEEN.clear()
    pickle.dumps(Looking())
    assert set(SEEN) <= {"", "pickle"}
