"""Rules about data: between the client and the workers, and between workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.assign.transfers import LEAST_BYTES, SLOW_BYTES_PER_S, result_sizes
from dasklab.breakdown.model.arrays import NONE, Codes, Mask
from dasklab.breakdown.model.causes import (
    BUSY_PEERS,
    CAUSES,
    CLIENT_DATA,
    GATHER,
    PLACEMENT,
    SCATTER,
    SERIALISE,
    Group,
)
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.repeat import CLIENT, Repeat
from dasklab.records.recorder.layout import KEY_SEPARATOR
from dasklab.terminal import counted, data_size

MANY_OBJECTS = 100
MOST_OF_DATA = 2 / 3  # that a task needs: elsewhere it would have needed to fetch much less
SLOW_OBJECT_S = 0.01  # of an event loop for each result: copying a small one takes less
SLOW_MBIT = 8 * SLOW_BYTES_PER_S / 1e6


@dataclass(frozen=True)
class Gathered:
    """Results that came to the client.

    Attributes:
        results: how many tasks' results no other task needed.
        seconds: for how long the client gathered, and ``busy_s`` of these its event loop was busy.
    """

    results: int
    nbytes: float
    seconds: float
    busy_s: float

    @property
    def is_unpickling(self) -> bool:
        """Whether the client spent most of the time with objects, not with bytes."""
        is_slow = self.busy_s > SLOW_OBJECT_S * self.results and self.nbytes < SLOW_BYTES_PER_S * self.busy_s
        return is_slow and self.busy_s > self.seconds / 2

    @property
    def mbit(self) -> float:
        """The rate at which results came while the client was not busy; infinite if it is unknown."""
        free_s = self.seconds - self.busy_s
        return 8e-6 * self.nbytes / free_s if self.nbytes >= LEAST_BYTES and free_s > 0 else np.inf


def gathered(repeat: Repeat) -> Gathered:
    """Total what the client gathered. Calls do not list keys: results that no task consumed are assumed."""
    start, stop = repeat.calls.of_kind("gather")
    start, stop = np.maximum(start, repeat.start), np.minimum(stop, repeat.stop)
    waits = IntervalSets(np.zeros(len(start), np.int64), start, stop)
    client = np.full(len(waits.start), repeat.node(CLIENT))
    sizes = result_sizes(repeat)
    return Gathered(
        results=len(sizes),
        nbytes=float(sizes.sum()),
        seconds=waits.total_s,
        busy_s=float(repeat.busy.within(client, waits.start, waits.stop).sum()),
    )


def _gather(case: Measurements) -> Symptom | None:
    moved = gathered(case.repeat)
    if moved.is_unpickling or moved.mbit < SLOW_MBIT:
        return None
    if moved.nbytes < LEAST_BYTES and moved.results < MANY_OBJECTS:  # something else took so long
        return None
    size = counted(moved.results, "result")
    if moved.nbytes >= LEAST_BYTES:
        size = f"{data_size(moved.nbytes)} of results"
    seconds = case.path_s(GATHER)
    return Symptom(
        seconds, f"Moving {size} through the scheduler to the client took {seconds:.1f} s {case.length}"
    )


def _gather_by_slow_link(case: Measurements) -> Symptom | None:
    moved = gathered(case.repeat)
    if moved.is_unpickling or moved.mbit >= SLOW_MBIT:
        return None
    seconds = case.path_s(GATHER)
    return Symptom(
        seconds,
        f"Moving {data_size(moved.nbytes)} of results to the client took {seconds:.1f} s {case.length},"
        f" at {moved.mbit:.0f} Mbit/s",
    )


def _unpickling(case: Measurements) -> Symptom | None:
    moved = gathered(case.repeat)
    if not moved.is_unpickling:
        return None
    seconds = min(case.path_s(GATHER), moved.busy_s)
    return Symptom(
        seconds,
        f"The client's event loop was busy for {moved.busy_s:.1f} s {case.length} while"
        f" {counted(moved.results, 'result')} of {data_size(moved.nbytes)} arrived: unpickling them takes"
        " long",
    )


def _scatter(case: Measurements) -> Symptom | None:
    """State the rate where a slow link explains it."""
    if case.facts.scattered >= MANY_OBJECTS:
        return None
    seconds, nbytes = case.path_s(SCATTER), case.facts.scattered_bytes
    start, stop = case.repeat.calls.of_kind("scatter")
    calls = IntervalSets(np.zeros(len(start), np.int64), start, stop)
    mbit = 8e-6 * nbytes / max(1e-9, calls.total_s)
    is_large = nbytes >= LEAST_BYTES
    rate = f", at {mbit:.0f} Mbit/s" if is_large and mbit < SLOW_MBIT else ""
    size = data_size(nbytes) if is_large else "data"
    return Symptom(seconds, f"Scattering {size} took {seconds:.1f} s {case.length}{rate}")


def _scatter_many(case: Measurements) -> Symptom | None:
    count = case.facts.scattered
    if count < MANY_OBJECTS:
        return None
    seconds = case.path_s(SCATTER)
    return Symptom(seconds, f"Scattering {counted(count, 'object')} took {seconds:.1f} s {case.length}")


def _placement(case: Measurements) -> Symptom | None:
    """Look at data whose holder had a free thread. What takes long is moving it, not converting it."""
    seconds, _ = case.bottleneck(PLACEMENT)
    waits_s = case.path_s(*(cause for cause in CAUSES if cause.group is Group.DATA))
    if not seconds or not waits_s:
        return None
    moving = 1 - case.path_s(SERIALISE) / waits_s
    seconds *= moving * _share_with_free_holder(case.repeat)
    return Symptom(
        seconds,
        f"Tasks on {case.where(PLACEMENT)} waited {seconds:.1f} s {case.length} for data that another worker"
        " had, where threads were free",
    )


def _share_with_free_holder(repeat: Repeat) -> float:
    """Return which share of the fetched bytes a worker had that had a free thread, too.

    A task that needs one piece of data has nothing that could be kept together.
    """
    needs = repeat.needs
    fetched = np.flatnonzero(repeat.need_fetch != NONE)
    texts, names = pd.factorize(np.array(needs.holders, object)[fetched])
    holder = np.array([*(_first_node(repeat, text) for text in names), NONE])
    time, nbytes = repeat.tasks.assigned[needs.task[fetched]], needs.nbytes[fetched]
    is_free = np.zeros(len(fetched), bool)
    for node, load in repeat.load.items():
        mine = np.flatnonzero(holder[texts] == node)
        threads = repeat.threads[repeat.places.nodes[node]]
        is_free[mine] = load.at(np.nextafter(time[mine], 0)) < threads
    is_better = _has_most(repeat, fetched, holder[texts])
    is_better &= np.bincount(needs.task, minlength=len(repeat.tasks))[needs.task[fetched]] > 1
    return float(nbytes[is_free & is_better].sum() / nbytes.sum()) if nbytes.sum() else 0.0


def _has_most(repeat: Repeat, fetched: Codes, holder: Codes) -> Mask:
    """Return for each fetched need whether its holder had most of all that the task needs."""
    needs, count = repeat.needs, len(repeat.places.nodes) + 1
    total = np.bincount(needs.task, needs.nbytes, len(repeat.tasks))
    cells, index = np.unique(needs.task[fetched] * count + holder + 1, return_inverse=True)
    stored = np.bincount(index, needs.nbytes[fetched], len(cells))[index]
    return np.asarray(stored > MOST_OF_DATA * total[needs.task[fetched]])


def _first_node(repeat: Repeat, holders: str) -> int:
    """Return the first of some holders that is a worker of the repeat; ``NONE`` if none is."""
    names = (name for name in holders.split(KEY_SEPARATOR) if name in repeat.threads)
    return next((repeat.node(name) for name in names), NONE)


def _serialising(case: Measurements) -> Symptom | None:
    """Look at results that take long to convert for their size."""
    fetches, moved = case.repeat.fetches, case.repeat.moved
    converting_s = fetches.serialise_s + fetches.deserialise_s
    is_slow = (converting_s > SLOW_OBJECT_S) & (moved < SLOW_BYTES_PER_S * converting_s)
    if not is_slow.any():
        return None
    seconds = min(case.path_s(SERIALISE), float(converting_s[is_slow].sum()))
    kinds = pd.Series(case.repeat.prefixes, dtype=object)[case.repeat.delivered.key]
    of_kind = pd.Series(np.where(is_slow, converting_s, 0.0)[case.repeat.delivered.fetch]).groupby(
        kinds.to_numpy(object)
    )
    return Symptom(
        seconds,
        f"Tasks waited {seconds:.1f} s {case.length} for results of {of_kind.sum().idxmax()} to be"
        " serialised and deserialised, slowly for their size",
    )


RULES = (
    AdviceRule(
        "results through the scheduler", "",
        "Reduce results on the workers first, or let tasks write them to storage.",
        pages.LEAVE_DATA, _gather, (CLIENT_DATA,),
    ),
    AdviceRule(
        "results over a slow link", f"{SLOW_MBIT:.0f} Mbit/s",
        "Reduce results on the workers first, or run the client near the cluster.",
        pages.LEAVE_DATA, _gather_by_slow_link, (CLIENT_DATA,),
    ),
    AdviceRule(
        "unpickling at the client", f"{1e3 * SLOW_OBJECT_S:.0f} ms for each result",
        "Return arrays, data frames or plain values instead of objects that unpickle slowly.",
        pages.SERIALIZATION, _unpickling, (CLIENT_DATA,),
    ),
    AdviceRule("scatter", "", "Let tasks load the data.", pages.LOAD_DATA, _scatter, (CLIENT_DATA,)),
    AdviceRule(
        "many scattered objects", counted(MANY_OBJECTS, "object"), "Scatter a few large ones.",
        pages.SCATTER, _scatter_many, (CLIENT_DATA,),
    ),
    AdviceRule(
        "avoidable transfers", "",
        "Keep together what is used together: larger chunks, or the same partitions.",
        pages.LOCALITY, _placement, (PLACEMENT,),
    ),
    AdviceRule(
        "slow serialising", f"{1e3 * SLOW_OBJECT_S:.0f} ms, and less than {SLOW_MBIT:.0f} Mbit/s",
        "Pass arrays or data frames between tasks instead of objects that pickle slowly.",
        pages.SERIALIZATION, _serialising, (BUSY_PEERS,),
    ),
)  # fmt: skip
