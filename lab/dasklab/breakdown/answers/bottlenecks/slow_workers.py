"""How long each task would typically take, to distinguish slow workers from long tasks."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.repeat import Repeat

LEAST_ALIKE = 5  # fewer tasks of a kind do not show what is usual
SLOWER = 1.5  # a worker is slow if its tasks take this multiple of the median elsewhere, where CPUs are free


def typical_seconds(repeat: Repeat, seconds: Floats) -> Floats:
    """Return for each task how long it would take on another worker, from some lengths of all tasks.

    It differs from the task's own length only on workers that are slower for most of what they ran, whatever
    its kind: by as much as that worker is slower in the median. A long task of its own neither makes a worker
    slow, nor does it become short elsewhere. Threads that get a CPU for half of their time may look twice as
    slow as others, so a worker must be slower by as much more.
    """
    least = SLOWER / max(1e-9, 1 - max((starved_share(repeat, node) for node in repeat.workers), default=0.0))
    elsewhere = np.full(len(seconds), np.nan)
    longest = np.full(len(seconds), np.nan)
    order = np.lexsort((seconds, repeat.prefix))
    for kind in np.split(order, np.flatnonzero(np.diff(repeat.prefix[order])) + 1):
        _compare_kind(kind, repeat.tasks.worker[kind], seconds[kind], elsewhere, longest)
    typical = seconds.copy()
    for worker in repeat.workers:
        own = np.flatnonzero((repeat.tasks.worker == worker) & ~np.isnan(elsewhere))
        if _is_slow(seconds[own], elsewhere[own], longest[own], least):
            slower = max(1.0, float(np.median(_ratios(seconds[own], elsewhere[own]))))
            typical[own] = np.maximum(elsewhere[own], seconds[own] / slower)
    return typical


def _ratios(seconds: Floats, elsewhere: Floats) -> Floats:
    return seconds / np.maximum(elsewhere, 1e-9)


def starved_share(repeat: Repeat, node: int) -> float:
    """Return for which share of its tasks' time a process's threads waited for a CPU; 0 if unknown."""
    tasks, use = repeat.tasks, repeat.evidence.cpu.get(node)
    seconds = float((tasks.stop - tasks.start)[tasks.worker == node].sum())
    if use is None or not seconds:
        return 0.0
    _, waited_s, _ = use.between(np.array([repeat.start]), np.array([repeat.stop]))
    return min(1.0, float(np.nan_to_num(waited_s[0])) / seconds)


def cpu_seconds(repeat: Repeat) -> Floats:
    """Return for how long each task used a CPU; all of its length where nobody metered it."""
    seconds = repeat.tasks.stop - repeat.tasks.start
    idle = repeat.evidence.shares.idle
    return seconds * (1 - np.nan_to_num(idle)) if len(idle) else seconds


def unhindered_seconds(repeat: Repeat) -> Floats:
    """Return the length of each task without its waits for CPU, interpreter, locks and tasks of its own."""
    seconds, shares = repeat.tasks.stop - repeat.tasks.start, repeat.evidence.shares
    own_s = np.maximum(0.0, seconds - repeat.waited_s)
    if not len(shares.idle):
        return own_s
    hindered = shares.starved + shares.interpreter + shares.unknown
    # the same division as in ``refine``: what a task slept while it held a lock is its own
    held_s = repeat.evidence.holding.within(np.arange(len(seconds)), repeat.tasks.start, repeat.tasks.stop)
    idle_s = np.maximum(0.0, np.nan_to_num(shares.idle) * seconds - repeat.waited_s - held_s)
    return np.maximum(0.0, own_s - idle_s * hindered)


def _compare_kind(rows: Codes, worker: Codes, seconds: Floats, elsewhere: Floats, longest: Floats) -> None:
    """Set the median and the maximum of a kind's lengths on other workers; ``seconds`` are sorted."""
    for node in np.unique(worker):
        own = np.flatnonzero(worker == node)
        others = len(rows) - len(own)
        if others >= LEAST_ALIKE:
            low, high = (_kth_other(own, k) for k in ((others - 1) // 2, others // 2))
            elsewhere[rows[own]] = (seconds[low] + seconds[high]) / 2
            longest[rows[own]] = seconds[_kth_other(own, others - 1)]


def _kth_other(positions: Codes, k: int) -> int:
    """Return the position of the k-th element that is not at one of some sorted positions."""
    # before the j-th of the positions lie positions[j] - j others
    return k + int(np.searchsorted(positions - np.arange(len(positions)), k, side="right"))


def _is_slow(seconds: Floats, elsewhere: Floats, longest: Floats, least: float) -> bool:
    """Whether a worker takes longer for most tasks; or, if it ran few, longer than anybody for each."""
    if len(seconds) >= LEAST_ALIKE:
        return bool(np.median(_ratios(seconds, elsewhere)) > least)
    return len(seconds) > 1 and bool((seconds > longest).all())
