"""Sentences about threads and memory that were there and never used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dasklab.breakdown.answers.facts.capacity import capacity, most_at_once
from dasklab.breakdown.answers.facts.facts import Facts
from dasklab.breakdown.answers.facts.memory import WorkerMemory, peaks
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.sentence import Sentence

TOPIC = "unused"
LEAST_RUNNING = 0.1  # of the repeat in which tasks ran: else threads are no reason for its length
FEW_THREADS = 0.5  # share of the threads: where more of them ran tasks at once, nothing is said
LITTLE_MEMORY = 0.25  # of the limit
LEAST_HEARTBEATS = 10  # of each worker: fewer do not show how much memory it used


def unused_sentences(repeat: Repeat, facts: Facts) -> Iterator[Sentence]:
    """Say what nobody used, if all that ran is recorded."""
    failures = facts.failures
    if not len(repeat.tasks) or failures.deaths or failures.restarts:
        return
    threads = max(stretch.threads for stretch in capacity(repeat, 0.0))
    most, left = most_at_once(repeat), repeat.unfinished.at(np.array([repeat.stop]))[0]
    if most <= FEW_THREADS * threads and not left and _running_s(repeat) > LEAST_RUNNING * repeat.makespan:
        yield Sentence(TOPIC, f"At most {most} of {threads} threads ran tasks at the same time.")
    yield from _memory(repeat, facts.memory)


def _running_s(repeat: Repeat) -> float:
    start, stop = np.maximum(repeat.tasks.start, repeat.start), np.minimum(repeat.tasks.stop, repeat.stop)
    some = IntervalSets(np.zeros(len(start), np.int64), start, stop)
    return some.total_s


def _memory(repeat: Repeat, workers: Sequence[WorkerMemory]) -> Iterator[Sentence]:
    inside = [((own.time >= repeat.start) & (own.time <= repeat.stop)).sum() for own in workers]
    if len(workers) < len(repeat.threads) or min(inside, default=0) < LEAST_HEARTBEATS:
        return
    first = peaks(repeat, workers, {})[0]
    share = first.process / first.limit
    if all(np.isfinite(own.limit).all() for own in workers) and share < LITTLE_MEMORY:
        yield Sentence(
            TOPIC,
            f"At no heartbeat did a worker use more than {math.ceil(100 * share)} % of its memory limit:"
            f" {first.process / 1e6:,.0f} of {first.limit / 1e6:,.0f} MB, on {first.worker}.",
        )
