"""Rules about what keeps threads and event loops from running: CPUs, the interpreter, garbage collection."""

from __future__ import annotations

import math

import numpy as np

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.rules import LEAST_SHARE, AdviceRule, Measurements, Symptom
from dasklab.breakdown.answers.facts.activities import BLOCKED_S, SampledActivity
from dasklab.breakdown.answers.facts.facts import running_while_blocked
from dasklab.breakdown.model.causes import COLLECTION, CPU, GIL, MEASURE, MEASURED_RESULTS, WORKER_LAG
from dasklab.breakdown.model.repeat import SCHEDULER

MANY_TASKS = 1000  # fewer are not what a scheduler's memory is full of
OTHERS_SHARE = 1.0  # of the CPU time that the cluster's own processes used
LIBRARY_THREADS = 1.5  # CPUs that a task uses or waits for
LEAST_MEASURING_S = 0.05  # a shorter time would be printed as 0.0 s
NAMED = ("import", "sizeof")  # activities of an event loop that have rules of their own


def _cpu(case: Measurements) -> Symptom | None:
    used_s, _ = _cpu_of_machine(case)
    if np.isnan(used_s) or not case.has_all_workers or _others_s(case) or _why_libraries(case):
        return None
    if case.bottleneck(GIL)[0] >= case.least_s:  # tasks of a process take turns: they need fewer CPUs
        return None
    cpus_in_use = math.ceil(used_s / case.repeat.makespan)  # about as many as there are
    return _starved(case, "") if case.threads > cpus_in_use else None


def _cpu_of_unknown(case: Measurements) -> Symptom | None:
    is_known = not np.isnan(_cpu_of_machine(case)[0])
    return None if is_known or _why_libraries(case) else _starved(case, "")


def _cpu_of_others(case: Measurements) -> Symptom | None:
    others_s = _others_s(case)
    if not others_s or _why_libraries(case):
        return None
    return _starved(case, f"; programs that are none of the cluster's used {others_s:.1f} s of its CPUs")


def _cpu_of_libraries(case: Measurements) -> Symptom | None:
    why = _why_libraries(case)
    return _starved(case, why) if why else None


def _why_libraries(case: Measurements) -> str:
    """Explain CPU contention by threads that tasks start; empty without evidence."""
    cpus = _cpus_of_a_task(case)
    if cpus > LIBRARY_THREADS:
        return f"; each of its tasks kept {cpus:.1f} threads busy"
    _, place = case.bottleneck(CPU)
    if place not in case.repeat.threads or case.repeat.is_shuffle.any():  # which have threads of Dask's
        return ""
    process_s, others_s = _cpu_of_other_threads(case, case.repeat.node(place))
    if others_s <= process_s / 2:
        return ""
    return (
        f"; threads beside its event loop and those of its tasks used {others_s:.1f} of the {process_s:.1f} s"
        " of its CPU time"
    )


def _cpu_of_other_threads(case: Measurements, node: int) -> tuple[float, float]:
    """Return the CPU time of a worker, and what of it neither its tasks' threads nor its event loop used.

    Nor a thread that may have converted data, as Dask does beside the event loop with large data. Threads
    that live for a moment are in no sample of their own, so their waits are unknown, but their CPU time is
    not. Nothing where the part of the event loop, or of a task, is unknown.
    """
    repeat, own = case.repeat, case.repeat.tasks.worker == node
    use, idle = repeat.evidence.cpu.get(node), repeat.evidence.shares.idle
    if use is None or not len(idle):
        return 0.0, 0.0
    ends = np.array([repeat.start]), np.array([repeat.stop])
    process_s, of_loop_s = float(use.between(*ends)[0][0]), float(use.loop_between(*ends)[0])
    of_tasks_s = float(((1 - idle) * (repeat.tasks.stop - repeat.tasks.start))[own].sum())
    converting_s = float(repeat.converting.within(np.array([node]), *ends)[0])
    others_s = process_s - of_loop_s - of_tasks_s - converting_s
    return (0.0, 0.0) if np.isnan(others_s) else (process_s, others_s)


def _starved(case: Measurements, why: str) -> Symptom | None:
    seconds, _ = case.bottleneck(CPU)
    if not seconds:
        return None
    where = case.where(CPU)
    return Symptom(
        seconds, f"Threads of {where} could run but waited {seconds:.1f} s {case.length} for a CPU{why}"
    )


def _others_s(case: Measurements) -> float:
    """Return the CPU time that other programs had where threads waited; 0 if it is little or unknown."""
    used_s, own_s = _cpu_of_machine(case)
    return used_s - own_s if used_s > (1 + OTHERS_SHARE) * own_s else 0.0


def _cpu_of_machine(case: Measurements) -> tuple[float, float]:
    """Return ``Repeat.cpu_of_machine`` where threads waited for a CPU."""
    _, place = case.bottleneck(CPU)
    nodes = case.repeat.places.nodes
    return case.repeat.cpu_of_machine(nodes.index(place)) if place in nodes else (np.nan, np.nan)


def _cpus_of_a_task(case: Measurements) -> float:
    """Return how many threads a task keeps busy where threads waited for a CPU; 0 if it is unknown."""
    repeat, (_, place) = case.repeat, case.bottleneck(CPU)
    node = repeat.node(place) if place in repeat.threads else -1
    use = repeat.evidence.cpu.get(node)
    own = repeat.tasks.worker == node
    seconds = float(case.task_s[own].sum())
    if use is None or not seconds:
        return 0.0
    cpu_s, waited_s, _ = use.between(np.array([repeat.start]), np.array([repeat.stop]))
    of_tasks_s = float(np.nan_to_num(cpu_s[0] + waited_s[0])) - repeat.busy_s(place)
    return of_tasks_s / seconds if seconds > LEAST_SHARE * repeat.makespan else 0.0


def _interpreter(case: Measurements) -> Symptom | None:
    seconds, place = case.bottleneck(GIL)
    if case.repeat.threads.get(place, 0) < 2 or case.bottleneck(CPU)[0] > seconds:
        return None
    return Symptom(
        seconds,
        f"Tasks on {case.where(GIL)} waited {seconds:.1f} s {case.length} for Python's interpreter (GIL)",
    )


def _garbage(case: Measurements) -> Symptom | None:
    _, place = case.bottleneck(COLLECTION)
    return _collected(case) if place in case.repeat.threads else None


def _garbage_of_scheduler(case: Measurements) -> Symptom | None:
    _, place = case.bottleneck(COLLECTION)
    return _collected(case) if place == SCHEDULER and len(case.repeat.tasks) >= MANY_TASKS else None


def _collected(case: Measurements) -> Symptom:
    """Sum up collections; what they waited for a CPU is none of it (see ``refine``)."""
    seconds, _ = case.bottleneck(COLLECTION)
    where = case.where(COLLECTION)
    return Symptom(seconds, f"Python collected garbage for {seconds:.1f} s {case.length} on {where}")


def _held_by_tasks(case: Measurements) -> Symptom | None:
    blocked = _blocked(case)
    if blocked is None or not blocked[2]:
        return None
    if (some := _activity(case)) is not None and some.activity in (*NAMED, "unpickle"):
        return None
    seconds, worker, kind = blocked
    return Symptom(
        seconds,
        f"The run waited {seconds:.1f} s {case.length} for the blocked event loop of {worker}, most of it"
        f" while {kind} ran",
    )


def _blocked_by_import(case: Measurements) -> Symptom | None:
    return _blocked_by(case, "import", "importing")


def _slow_sizeof(case: Measurements) -> Symptom | None:
    """Look at both times that Dask asks a result for its size: in its task, and in the event loop."""
    measured_s = case.path_s(MEASURE)
    blocked = _blocked_by(case, "sizeof", "measuring the sizes of results")
    if blocked is None:
        text = f"Tasks asked their results for their sizes, which took {measured_s:.1f} s {case.length}"
        return Symptom(measured_s, text) if measured_s else None
    threads = f", and {measured_s:.1f} s for the same in tasks" if measured_s >= LEAST_MEASURING_S else ""
    return Symptom(blocked.seconds + measured_s, blocked.sentence + threads)


def _blocked_by(case: Measurements, word: str, doing: str) -> Symptom | None:
    """Look for a worker's event loop of which most samples show one activity."""
    blocked, some = _blocked(case), _activity(case)
    if blocked is None or some is None or some.activity != word:
        return None
    seconds, worker, _ = blocked
    what = " ".join(filter(None, [doing, some.name]))
    where = f" in {some.code}" if some.code and not some.name else ""
    return Symptom(
        min(seconds, some.seconds),
        f"The run waited {seconds:.1f} s {case.length} for the blocked event loop of {worker}, most of it"
        f" by {what}{where}",
    )


def _activity(case: Measurements) -> SampledActivity | None:
    """Return what the event loop was doing that the path waited for, if most samples agree."""
    _, place = case.bottleneck(WORKER_LAG)
    own = (some for some in case.activities if not some.kind and some.place == place)
    return next(own, None)


def _blocked_otherwise(case: Measurements) -> Symptom | None:
    """Name the place. What is written to disk is written in the event loop, and has a rule of its own."""
    blocked = _blocked(case)
    if blocked is None or blocked[2] or case.facts.spilled_bytes:
        return None
    if (some := _activity(case)) is not None and some.activity in NAMED:
        return None
    seconds, worker, _ = blocked
    return Symptom(
        seconds,
        f"The run waited {seconds:.1f} s {case.length} for the blocked event loop of {worker}, and no"
        " kind of task ran for most of that time",
    )


def _blocked(case: Measurements) -> tuple[float, str, str] | None:
    """Return for how long an event loop was blocked, which one, and the kind of task that ran meanwhile."""
    _, place = case.bottleneck(WORKER_LAG)
    if place not in case.repeat.threads:
        return None
    blocked_s, kind = running_while_blocked(case.repeat, place, BLOCKED_S)
    return min(case.summary.bottlenecks[WORKER_LAG, place], blocked_s), place, kind


RULES = (
    AdviceRule(
        "too few CPUs", "more threads than CPUs", "Use fewer threads or workers on that machine.",
        pages.OVERSUBSCRIPTION, _cpu, (CPU,),
    ),
    AdviceRule(
        "CPUs that something used", "",
        "Look at what used them: other programs on that machine, or more threads than it has CPUs.",
        pages.OVERSUBSCRIPTION, _cpu_of_unknown, (CPU,),
    ),
    AdviceRule(
        "CPUs that other programs use", f"{100 * OTHERS_SHARE:.0f} % of the cluster's own CPU time",
        "End those programs, or use other machines.", pages.NONE, _cpu_of_others, (CPU,),
    ),
    AdviceRule(
        "threads of libraries", f"{LIBRARY_THREADS} threads for each task",
        "If a library starts them, set OMP_NUM_THREADS=1, MKL_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 before"
        " the workers start; else let tasks start fewer.",
        pages.OVERSUBSCRIPTION, _cpu_of_libraries, (CPU,),
    ),
    AdviceRule(
        "interpreter", "2 threads", "Use more worker processes with fewer threads each.",
        pages.THREADS_OR_PROCESSES, _interpreter, (GIL,),
    ),
    AdviceRule(
        "garbage collection", "", "Make fewer small Python objects in tasks: use arrays or data frames.",
        pages.GARBAGE, _garbage, (COLLECTION,),
    ),
    AdviceRule(
        "garbage collection of the scheduler", f"{MANY_TASKS} tasks",
        "Give it fewer objects: larger chunks or partitions, so that there are fewer tasks.",
        pages.LARGE_GRAPHS, _garbage_of_scheduler, (COLLECTION,),
    ),
    AdviceRule(
        "tasks that block the event loop", f"{BLOCKED_S} s at a time",
        "If they keep the interpreter: libraries that release it, or more processes with fewer threads.",
        pages.THREADS_OR_PROCESSES, _held_by_tasks, (WORKER_LAG,),
    ),
    AdviceRule(
        "imports in the event loop", f"{BLOCKED_S} s at a time",
        "Import it when workers start, in a preload script or a plugin, and from a local disk.",
        pages.INITIALIZATION, _blocked_by_import, (WORKER_LAG,),
    ),
    AdviceRule(
        "slow __sizeof__", f"{BLOCKED_S} s at a time",
        "Give the class a __sizeof__ that takes no time, or register one with dask.sizeof.sizeof.",
        pages.NONE, _slow_sizeof, (WORKER_LAG, MEASURED_RESULTS),
    ),
    AdviceRule(
        "blocked event loops", f"{BLOCKED_S} s at a time",
        "Look at what ran in it: client.run, a plugin, an import, __sizeof__ of what a task brings, data that"
        " was packed or unpacked. Do what you can of it in tasks, or beforehand.",
        pages.NONE, _blocked_otherwise, (WORKER_LAG,),
    ),
)  # fmt: skip
