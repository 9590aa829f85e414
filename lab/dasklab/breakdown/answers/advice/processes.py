"""Rules about what keeps threads and event loops from running: CPUs, the interpreter, garbage collection."""

from __future__ import annotations

from dasklab.breakdown.answers.advice.rules import (
    DASK,
    DISTRIBUTED,
    AdviceRule,
    Measurements,
    Symptom,
    process,
)
from dasklab.breakdown.answers.facts import running_while_blocked
from dasklab.breakdown.model.causes import COLLECTION, CPU, GIL, WORKER_LAG

BLOCKED_S = 0.1  # a shorter busy interval of an event loop is everyday work


def _cpu(case: Measurements) -> Symptom | None:
    seconds, place = case.bottleneck(CPU)
    return Symptom(
        seconds, f"Threads of {process(place)} could run but waited {seconds:.1f} s {case.length} for a CPU"
    )


def _interpreter(case: Measurements) -> Symptom | None:
    seconds, place = case.bottleneck(GIL)
    return Symptom(
        seconds,
        f"Tasks on {process(place)} waited {seconds:.1f} s {case.length} for Python's interpreter (GIL)",
    )


def _garbage(case: Measurements) -> Symptom | None:
    seconds, place = case.bottleneck(COLLECTION)
    if place not in case.repeat.threads:  # no task's objects
        return None
    return Symptom(seconds, f"Python collected garbage for {seconds:.1f} s {case.length} on {process(place)}")


def _blocked_loop(case: Measurements) -> Symptom | None:
    seconds, place = case.bottleneck(WORKER_LAG)
    if place not in case.repeat.threads:
        return None
    blocked, kind = running_while_blocked(case.repeat, place, BLOCKED_S)
    beside = f", most of it while {kind} ran" if kind else ""
    return Symptom(
        min(seconds, blocked),
        f"The event loop of {place} was blocked for {blocked:.1f} s {case.length}{beside}",
    )


FEWER_THREADS = f"{DISTRIBUTED}/efficiency.html#adjust-between-threads-and-processes"
RULES = (
    AdviceRule(
        "too few CPUs", "",
        "Use fewer threads, or end other programs there; libraries with threads of their own need"
        " OMP_NUM_THREADS=1.",
        f"{DASK}/array-best-practices.html#avoid-oversubscribing-threads", _cpu,
    ),
    AdviceRule(
        "interpreter", "", "Use more worker processes with fewer threads each.",
        FEWER_THREADS, _interpreter,
    ),
    AdviceRule(
        "garbage collection", "", "Make fewer small Python objects in tasks: use arrays or data frames.",
        f"{DISTRIBUTED}/worker-memory.html", _garbage,
    ),
    AdviceRule(
        "blocked event loops", f"{BLOCKED_S} s at a time",
        "Something there keeps the interpreter: use more processes with fewer threads, and libraries that"
        " release it.",
        FEWER_THREADS, _blocked_loop,
    ),
)  # fmt: skip
