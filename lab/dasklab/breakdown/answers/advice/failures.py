"""Rules about what failed and cost time: attempts of tasks, workers that died."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.answers.bottlenecks.grounds import Item
from dasklab.breakdown.answers.facts.failures import TaskAttempt, attempts_within, failed_kinds
from dasklab.breakdown.model.causes import AGAIN
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.deaths import Death
from dasklab.terminal import counted, enumerated

SHORT_S = 0.05  # of computing again: less is not worth a word
MOST_NAMES = 3


def _attempts(case: Measurements) -> Symptom | None:
    """Look at attempts that were repeated: the last one of a task that is given up costs no time."""
    repeat = case.repeat
    attempts = [
        attempt
        for attempt in attempts_within(repeat, case.facts.failures)
        if np.isfinite(attempt.seconds) and attempt.key not in repeat.foreign_keys
    ]
    kinds = [kind for kind in failed_kinds(repeat, attempts) if kind.attempts > kind.tasks or kind.recovered]
    if not kinds:
        return None
    names = {kind.kind for kind in kinds}
    of_key: defaultdict[str, float] = defaultdict(float)
    for attempt in attempts:
        if attempt.kind in names:
            of_key[attempt.key] += attempt.seconds
    total_s = sum(of_key.values())
    error = f" ({kinds[0].error})" if kinds[0].error else ""
    return Symptom(
        min(repeat.makespan, max(total_s / case.concurrency, *of_key.values(), 0.0)),
        f"{counted(kinds[0].attempts, 'attempt')} of {kinds[0].kind} failed{error} and had to be repeated;"
        f" failed attempts took {total_s:.1f} thread-seconds",
        events=[_failed_attempt(repeat, attempt) for attempt in attempts if attempt.kind in names],
    )


def _failed_attempt(repeat: Repeat, attempt: TaskAttempt) -> Item:
    stop_s = attempt.stop - repeat.start
    start_s = stop_s - attempt.seconds
    return Item("attempt", attempt.key, attempt.worker, "", start_s, stop_s, attempt.seconds)


def _killed_for_memory(case: Measurements) -> Symptom | None:
    deaths = [death for death in _deaths(case) if death.limit_bytes]
    return _lost_with(case, deaths, ", ended by a nanny because of memory") if deaths else None


def _died(case: Measurements) -> Symptom | None:
    deaths = [death for death in _deaths(case) if death.processing or death.lost]
    if not deaths or any(death.limit_bytes for death in deaths):
        return None
    return _lost_with(case, deaths, " without having been asked to leave")


def _deaths(case: Measurements) -> list[Death]:
    repeat = case.repeat
    return [death for death in case.facts.failures.deaths if repeat.start <= death.time <= repeat.stop]


def _lost_with(case: Measurements, deaths: Sequence[Death], how: str) -> Symptom:
    """Sum up what was computed again, and the time for which threads were missing."""
    repeat = case.repeat
    dead = {death.worker for death in deaths}
    absences = list(_absences(repeat))
    missing_s = sum(item.seconds for item in absences)
    again_s = max(case.thread_s(AGAIN), case.path_s(AGAIN))
    again = (
        f"results were computed again for {again_s:.1f} s {case.length}, and " if again_s > SHORT_S else ""
    )
    who = enumerated(sorted(dead)) if len(deaths) <= MOST_NAMES else counted(len(dead), "worker")
    times = f" {counted(len(deaths), 'time')} in all" if len(deaths) > len(dead) else ""
    return Symptom(
        min(repeat.makespan, again_s + missing_s / max(1, case.threads)),
        f"{who} died{times}{how}: {again}threads were missing for {missing_s:.1f} thread-seconds",
        events=absences or [_death(repeat, death) for death in deaths],
    )


def _absences(repeat: Repeat) -> Iterator[Item]:
    """Yield for how long the threads of workers were missing, in thread-seconds."""
    away = repeat.evidence.away
    nodes = (repeat.places.nodes[node] for node in away.member.tolist())
    for name, begin, end in zip(nodes, away.start.tolist(), away.stop.tolist(), strict=True):
        count, start_s, stop_s = repeat.threads[name], begin - repeat.start, end - repeat.start
        yield Item(
            "worker", f"{counted(count, 'thread')} missing", name, "", start_s, stop_s, count * (end - begin)
        )


def _death(repeat: Repeat, death: Death) -> Item:
    moment = death.time - repeat.start
    return Item("worker", "died", death.worker, "", moment, moment, 0.0)


RULES = (
    AdviceRule(
        "failed attempts", "", "Find out why they fail before they are tried again.", pages.ERRORS, _attempts
    ),
    AdviceRule(
        "workers ended for their memory", "",
        "Give each worker more memory or less to do: smaller chunks, fewer threads.",
        pages.DEAD_WORKERS, _killed_for_memory,
    ),
    AdviceRule("workers that died", "", "Read their logs.", pages.DEAD_WORKERS, _died),
)  # fmt: skip
