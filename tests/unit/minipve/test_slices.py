"""A process's slices are read where the kernel tells them: /proc/PID/sched, ``se.slice``, in nanoseconds."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

import pytest

from lab.minipve.machine import slices

KERNEL = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])


def slice_ns(pid: int) -> int:
    found = re.search(r"^se\.slice +: +(\d+)$", Path(f"/proc/{pid}/sched").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@pytest.mark.skipif(KERNEL < (6, 12), reason="needs Linux 6.12, which has slices for each thread")
def test_a_process_has_long_slices_and_nobody_else() -> None:
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as other:
        try:
            for each in (one, other):  # whatever the tests themselves run at
                os.sched_setscheduler(each.pid, os.SCHED_OTHER, os.sched_param(0))
            before = slice_ns(other.pid)
            slices.lengthen(one.pid)
            assert (slice_ns(one.pid), slice_ns(other.pid)) == (100_000_000, before)
        finally:
            one.kill()
            other.kill()


def test_who_chose_another_policy_keeps_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as one:
        try:
            os.sched_setscheduler(one.pid, os.SCHED_BATCH, os.sched_param(0))
            slices.lengthen(one.pid)
            assert os.sched_getscheduler(one.pid) == os.SCHED_BATCH
        finally:
            one.kill()


def test_a_process_that_has_ended_is_no_error() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    slices.lengthen(gone.pid)
