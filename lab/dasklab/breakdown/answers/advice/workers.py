"""Rules about workers: none is there yet, one is slower, first tasks take longer, tasks share a lock."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.answers.bottlenecks.slow_workers import SLOWER, typical_seconds, unhindered_seconds
from dasklab.breakdown.model.arrays import Codes, Floats, Mask
from dasklab.breakdown.model.causes import EXTERNAL, MISSING_WORKERS, NO_WORKER
from dasklab.breakdown.model.repeat import Repeat

LEAST_ALIKE = 5  # tasks
SWITCH_S = 0.005  # for so long another thread may keep the interpreter, whatever the machine
FIRST_SLOWER = 2.0  # x nearly all later tasks of its kind
STAGGERED = 0.25  # share of a task's length: by so much the steps of a queue may differ


def _no_worker(case: Measurements) -> Symptom | None:
    failures = case.facts.failures
    if failures.restarts or failures.deaths:  # another rule says why
        return None
    seconds = case.path_s(NO_WORKER)
    return Symptom(seconds, f"No worker was there for {seconds:.1f} s {case.length}") if seconds else None


def _slow_worker(case: Measurements) -> Symptom | None:
    """Compare the lengths of tasks with those of the same kinds on other workers.

    Whether they computed or waited does not matter, but waits for a CPU or the interpreter are left out.
    """
    repeat, seconds = case.repeat, unhindered_seconds(case.repeat)
    if not len(seconds) or len(repeat.threads) < 2:
        return None
    typical = typical_seconds(repeat, seconds)
    is_slow = (typical != seconds) & (typical > SWITCH_S)
    beyond_s = np.bincount(repeat.tasks.worker[is_slow], (seconds - typical)[is_slow], repeat.workers.stop)
    node = int(beyond_s.argmax())
    own = is_slow & (repeat.tasks.worker == node)
    if np.count_nonzero(own) < LEAST_ALIKE:
        return None
    ratio = float(np.median(seconds[own] / np.maximum(typical[own], 1e-9)))
    if ratio < SLOWER:
        return None
    name = repeat.places.nodes[node]
    return Symptom(
        min(float(beyond_s[node]) / repeat.threads[name], repeat.makespan * (1 - 1 / ratio)),
        f"Tasks on {name} took x {ratio:.1f} as long as those of the same kinds on other workers (median of"
        f" {np.count_nonzero(own):,}), {beyond_s[node]:.1f} thread-seconds more in all",
        np.flatnonzero(own),
    )


def _first_tasks(case: Measurements) -> Symptom | None:
    """Compare the first task of a kind on each worker with the later ones."""
    repeat, tasks = case.repeat, case.repeat.tasks
    if not len(tasks):
        return None
    is_first = _is_first(repeat)
    some = repeat.is_users & ~case.has_failed
    rows = pd.DataFrame(
        {"kind": repeat.prefix, "worker": tasks.worker, "seconds": case.task_s, "is_first": is_first}
    )[some]
    first = rows[rows.is_first].groupby(["kind", "worker"]).seconds.min()
    later = rows[~rows.is_first].groupby("kind").seconds
    usual = pd.DataFrame({"median": later.median(), "high": later.quantile(0.9), "count": later.size()})
    usual = usual[usual["count"] >= LEAST_ALIKE]
    first = first[first.index.get_level_values("kind").isin(usual.index)]
    if not len(first):
        return None
    kind = first.index.get_level_values("kind")
    beyond = (first - usual["median"].reindex(kind).to_numpy()).groupby("kind").max()
    least = first.groupby("kind").min()
    slow = beyond[least > FIRST_SLOWER * usual["high"].reindex(least.index)]
    slow = slow[first.groupby("kind").size().reindex(slow.index) > 1]
    if not len(slow):
        return None
    code = int(slow.idxmax())
    name = repeat.prefixes[tasks.key[repeat.prefix == code][0]]
    return Symptom(
        float(slow.max()),
        f"The first {name} on each worker took {least[code]:.2g} s or more, later ones"
        f" {usual['median'][code]:.2g} s (median of {usual['count'][code]:,})",
        np.flatnonzero(some & is_first & (repeat.prefix == code)),
    )


def _is_first(repeat: Repeat) -> Mask:
    """Return for each task whether it began before any of its kind had ended on its worker."""
    tasks = repeat.tasks
    group = pd.Series(tasks.stop).groupby([repeat.prefix, tasks.worker])
    return np.asarray(tasks.start < group.transform("min").to_numpy())


def _process_lock(case: Measurements) -> Symptom | None:
    """Look for tasks that were seen to wait for a lock.

    Else for tasks that began together on a worker and ended one after another without using a CPU. What one
    thread for each process would gain at most is the time of the other threads.
    """
    repeat, tasks = case.repeat, case.repeat.tasks
    others = 1 - 1 / max(repeat.threads.values(), default=1)
    if lock := next((some for some in case.activities if some.activity == "lock"), None):
        name = f" ({lock.name})" if lock.name else ""
        of_kind = np.array(repeat.prefixes, object)[tasks.key] == lock.kind
        taken_s = min(case.thread_s(EXTERNAL), float(case.task_s[of_kind].sum()) / case.threads)
        return Symptom(
            taken_s * others,
            f"Tasks of {lock.kind} waited for a lock of their process{name}, in {lock.agree} of"
            f" {lock.samples} samples",
            np.flatnonzero(of_kind),
        )
    if not len(tasks) or not len(repeat.evidence.shares.idle):
        return None
    waited_s = np.bincount(repeat.prefix, np.nan_to_num(repeat.evidence.shares.idle) * case.task_s)
    kind = int(waited_s.argmax())
    rows = np.flatnonzero(repeat.prefix == kind)
    nodes = np.unique(tasks.worker[rows]).tolist()
    threads_of = {node: repeat.threads[repeat.places.nodes[node]] for node in nodes}
    staggered = [
        _steps_are_even(tasks.start, tasks.stop, rows[tasks.worker[rows] == node], threads)
        for node, threads in threads_of.items()
        if threads > 1
    ]
    if not staggered or sum(staggered) < len(staggered) / 2:
        return None
    return Symptom(
        min(case.thread_s(EXTERNAL), float(waited_s[kind]) / case.threads) * others,
        f"Tasks of {repeat.prefixes[tasks.key[rows[0]]]} that began together on a worker ended one after"
        f" another and used no CPU meanwhile ({waited_s[kind]:.1f} thread-seconds), as they do with a lock of"
        " the process",
        rows,
    )


def _steps_are_even(start: Floats, stop: Floats, rows: Codes, threads: int) -> bool:
    """Return whether tasks ended at even steps, so that each later one took as long as all threads' turns."""
    if len(rows) < 2 * threads:
        return False
    together = rows[:threads]
    if start[together].max() >= stop[together].min():
        return False
    ends = np.sort(stop[together])
    turns = np.diff(ends, prepend=start[together].max())
    turn = float(turns.mean())
    later = (stop - start)[rows[threads:]]
    is_even = bool((np.abs(turns - turn) < STAGGERED * turn).all())
    return is_even and abs(float(np.median(later)) - threads * turn) < STAGGERED * threads * turn


RULES = (
    AdviceRule(
        "no worker yet", "",
        "Start the workers before (client.wait_for_workers), or let the cluster keep some:"
        " adapt(minimum=...).",
        pages.ADAPTIVE, _no_worker, (MISSING_WORKERS,),
    ),
    AdviceRule(
        "a slow worker", f"x {SLOWER} the others, {LEAST_ALIKE} tasks",
        "Look at its machine: other programs, a slower CPU or disk; or do without it.",
        pages.NONE, _slow_worker,
    ),
    AdviceRule(
        "slow first tasks", f"x {FIRST_SLOWER:.0f} the later ones",
        "Import, connect and compile before: in a preload script, or in a plugin of the workers.",
        pages.INITIALIZATION, _first_tasks,
    ),
    AdviceRule(
        "a lock of the process", f"{LEAST_ALIKE} tasks",
        "Use one thread for each worker process, and more processes.",
        pages.THREADS_OR_PROCESSES, _process_lock,
    ),
)  # fmt: skip
