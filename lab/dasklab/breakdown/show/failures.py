"""Sentences about what failed in a record: attempts, tasks, workers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dasklab.breakdown.answers.facts.failures import (
    FailedKind,
    Failures,
    attempts_within,
    failed_kinds,
)
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.deaths import Death
from dasklab.breakdown.show.sentence import Sentence, share_of_threads
from dasklab.terminal import counted, data_size, enumerated

TOPIC = "failures"
MAX_FAILED_KINDS = 3
MOST_NAMES = 3
MOST_DEATHS = 3
ARRIVAL_S = 0.1  # what a client requests as its last act reaches the scheduler after the block


def failure_sentences(repeat: Repeat, failures: Failures) -> Iterator[Sentence]:
    """Say what failed in a repeat, or was ended by a client."""
    start, stop = repeat.start, repeat.stop
    for kind in failed_kinds(repeat, attempts_within(repeat, failures))[:MAX_FAILED_KINDS]:
        yield Sentence(TOPIC, _attempts(kind), share_of_threads(repeat, kind.seconds))
    yield from (Sentence(TOPIC, text) for text in _ends(failures, start, stop))


def _ends(failures: Failures, start: float, stop: float) -> Iterator[str]:
    """Say of workers, tasks and results what ended them."""
    deaths = [death for death in failures.deaths if start <= death.time <= stop]
    yield from (_death(death, start) for death in deaths[:MOST_DEATHS])
    if len(deaths) > MOST_DEATHS:
        yield f"{counted(len(deaths) - MOST_DEATHS, 'more worker')} died later."
    killed = [task for task in failures.killed if start <= task.time <= stop]
    for task in killed[:MAX_FAILED_KINDS]:
        yield (
            f"The task {task.kind} was given up, because {counted(task.deaths, 'worker')} died while they"
            f" had it (KilledWorker)."
        )
    if len(killed) > MAX_FAILED_KINDS:
        yield f"{counted(len(killed) - MAX_FAILED_KINDS, 'more task')} were given up for the same reason."
    for time in failures.restarts:
        if start <= time <= stop:
            yield (
                f"A client restarted the workers {time - start:.1f} s after the start: they forgot their"
                f" results, and tasks that had not ended did not go on."
            )
    for verb, requests in (("retried", failures.retried), ("cancelled", failures.cancelled)):
        own = [(time, count) for time, count in requests if start <= time <= stop + ARRIVAL_S]
        if own:
            total, first = sum(count for _, count in own), own[0][0] - start
            when = "did so" if total == 1 else "began to do so"
            tasks = counted(total, "task")
            yield f"A client {verb} {tasks}; the scheduler {when} {first:.1f} s after the start."


def _attempts(kind: FailedKind) -> str:
    error = f" with {kind.error}" if kind.error else ""
    names = list(kind.workers)
    where = enumerated(names) if len(names) <= MOST_NAMES else counted(len(names), "worker")
    who = "it" if kind.attempts == 1 else "they"
    took = "" if math.isnan(kind.seconds) else f"; {who} took {kind.seconds:.1f} s of thread time"
    whose = " of another client" if kind.is_foreign else ""
    tasks = f"{counted(kind.tasks, 'task')}{whose}"
    if kind.recovered == kind.tasks:
        end = "It succeeded later." if kind.tasks == 1 else "All of these succeeded later."
    elif kind.recovered:
        end = f"{kind.recovered} of these succeeded later."
    else:
        end = "It did not succeed later." if kind.tasks == 1 else "None of these succeeded later."
    return (
        f"{counted(kind.attempts, 'attempt')} of {tasks} ({kind.kind}) failed{error} on {where}{took}. {end}"
    )


def _death(death: Death, start: float) -> str:
    parts = []
    if death.processing:
        parts.append(f"{counted(death.processing, 'task')} had not ended there")
    if death.lost:
        parts.append(f"{counted(death.lost, 'result')} existed nowhere else")
    left = f": {' and '.join(parts)}" if parts else ""
    moment = f"{death.time - start:.1f} s after the start"
    if not death.rss_bytes:
        return f"{death.worker} died {moment}{left}."
    limit = f" of a limit of {data_size(death.limit_bytes)}" if death.limit_bytes else ""
    return f"{death.worker} was ended by its nanny at {data_size(death.rss_bytes)}{limit}, {moment}{left}."
