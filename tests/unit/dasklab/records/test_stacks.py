"""How many stacks are sampled, and what is seen in one."""

from __future__ import annotations

import sys
import threading
from itertools import pairwise

from dasklab.records.recorder.stacks import INTERVAL_S, MOST_A_MINUTE, Budget, activity_of, stack_texts


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
