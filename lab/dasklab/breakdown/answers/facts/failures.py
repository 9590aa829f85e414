"""What failed: attempts of tasks, tasks that were given up, workers that died, and what a client ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from dask.utils import key_split

from dasklab.breakdown.model.arrays import floats
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.deaths import NANNY_S, Death, deaths_of, detail_of
from dasklab.terminal import enumerated

MAX_NAMED_TYPES = 3  # of the errors of one kind of task


@dataclass(frozen=True)
class TaskAttempt:
    """An attempt of a task that raised an error.

    Attributes:
        kind: what the task computes.
        stop: when it had ended, by its worker's clock.
        seconds: how long it had a thread; NaN if unknown.
        error: type of the error, or what is known of its text; empty if it was not recorded.
        is_recovered: whether a later attempt of the task succeeded.
    """

    key: str
    kind: str
    worker: str
    stop: float
    seconds: float
    error: str
    is_recovered: bool


@dataclass(frozen=True)
class KilledTask:
    """A task that the scheduler gave up, because so many workers died while they had it."""

    time: float
    key: str
    kind: str
    deaths: int


@dataclass(frozen=True)
class Failures:
    """What failed, each in the order of its times. Times are the scheduler's, if nothing else is said.

    Attributes:
        cancelled, retried: when a client cancelled tasks, or had failed ones computed again, and how many it
            named.
        restarts: when a client restarted the cluster.
    """

    attempts: Sequence[TaskAttempt] = ()
    killed: Sequence[KilledTask] = ()
    deaths: Sequence[Death] = ()
    cancelled: Sequence[tuple[float, int]] = ()
    retried: Sequence[tuple[float, int]] = ()
    restarts: Sequence[float] = ()


def failures(frames: Mapping[str, pd.DataFrame]) -> Failures:
    """Collect what failed from the tables of a record."""
    events = frames["events"].sort_values("time_s", kind="stable")
    details = [detail_of(text) for text in events.detail]
    rows = list(zip(events.kind, floats(events.time_s).tolist(), events.subject, details, strict=True))
    # earlier recorders have only the end of a restart
    restart = next((kind for kind in ("client-restart", "restart-workers") if kind in set(events.kind)), "")
    deaths = list(deaths_of(events, frames["workers"]))
    restarts = [
        min([time, *(death.time for death in deaths if 0 <= time - death.time < NANNY_S)])
        for kind, time, _, _ in rows
        if kind == restart
    ]
    cancelled, retried = (
        [(time, int(detail.get("count", 0))) for kind, time, _, detail in rows if kind == request]
        for request in ("cancel", "retry")
    )
    return Failures(
        attempts=list(_attempts(frames["tasks"], frames["errors"])),
        killed=[
            KilledTask(time, str(subject), str(key_split(subject)), int(detail.get("failures", 0)))
            for kind, time, subject, detail in rows
            if kind == "killed-worker"
        ],
        deaths=[death for death in deaths if not _is_near(death.time, restarts)],
        cancelled=cancelled,
        retried=retried,
        restarts=restarts,
    )


def _is_near(time: float, moments: Sequence[float]) -> bool:
    return any(abs(time - moment) < NANNY_S for moment in moments)


def _attempts(tasks: pd.DataFrame, errors: pd.DataFrame) -> Iterator[TaskAttempt]:
    done_s = floats(tasks.done_s)
    failed = tasks[(tasks.status == "error") & ~np.isnan(np.fmax(done_s, floats(tasks.stop_s)))]
    if not len(failed):
        return
    end_s = pd.Series(np.fmax(done_s, floats(tasks.handled_s)), tasks.index)
    succeeded = end_s[tasks.status == "OK"].groupby(tasks.key).max()
    errors_of: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for key, worker, time, kind, text in zip(
        errors.key, errors.worker, floats(errors.time_s), errors.type, errors.text, strict=True
    ):
        errors_of.setdefault((key, worker), []).append((float(time), str(text or kind)))
    start = np.fmin(floats(failed.start_s), floats(failed.executing_s))
    stop = np.fmax(floats(failed.stop_s), floats(failed.done_s))
    order = np.argsort(stop, kind="stable")
    rows = failed.iloc[order]
    for key, worker, attempt_start, attempt_stop in zip(
        rows.key, rows.worker, start[order], stop[order], strict=True
    ):
        texts = errors_of.get((key, worker), ())
        nearest = min(texts, key=lambda error: abs(error[0] - attempt_stop), default=(0.0, ""))
        yield TaskAttempt(
            key=str(key),
            kind=str(key_split(key)),
            worker=str(worker),
            stop=float(attempt_stop),
            seconds=float(attempt_stop - attempt_start),
            error=nearest[1],
            is_recovered=bool(succeeded.get(key, np.nan) > attempt_stop),
        )


@dataclass(frozen=True)
class FailedKind:
    """Failed attempts of one kind of task.

    Attributes:
        is_foreign: whether the tasks are another client's than the recorded one's.
        attempts: their number.
        tasks: number of tasks that they belong to; ``recovered`` of these succeeded later.
        seconds: thread time of the attempts; NaN if that of one is unknown.
        error: the error of all of them, or the types of errors; empty if unknown.
        workers: number of attempts by worker, most first.
    """

    kind: str
    is_foreign: bool
    attempts: int
    tasks: int
    recovered: int
    seconds: float
    error: str
    workers: Mapping[str, int]


def attempts_within(repeat: Repeat, failures: Failures) -> list[TaskAttempt]:
    """Return the failed attempts that ended in a repeat."""
    return [attempt for attempt in failures.attempts if repeat.start <= attempt.stop <= repeat.stop]


def failed_kinds(repeat: Repeat, attempts: Sequence[TaskAttempt]) -> list[FailedKind]:
    """Sum attempts up by the kind of their tasks and by whose they are, the most attempts first."""
    by_kind: dict[tuple[str, bool], list[TaskAttempt]] = {}
    for attempt in attempts:
        by_kind.setdefault((attempt.kind, attempt.key in repeat.foreign_keys), []).append(attempt)
    kinds = [
        FailedKind(
            kind=kind,
            is_foreign=is_foreign,
            attempts=len(own),
            tasks=len({attempt.key for attempt in own}),
            recovered=len({attempt.key for attempt in own if attempt.is_recovered}),
            seconds=sum(attempt.seconds for attempt in own),
            error=_errors([attempt.error for attempt in own]),
            workers=dict(Counter(attempt.worker for attempt in own).most_common()),
        )
        for (kind, is_foreign), own in by_kind.items()
    ]
    return sorted(kinds, key=lambda kind: -kind.attempts)


def _errors(texts: Sequence[str]) -> str:
    """Return the text that all errors have, or their types, the most frequent first."""
    if len(set(texts)) == 1:
        return texts[0]
    types = [name for name, _ in Counter(text.partition("(")[0] for text in texts).most_common()]
    shown_types = [name for name in types if name.isidentifier()][:MAX_NAMED_TYPES]
    return enumerated([*shown_types, "other errors"] if len(shown_types) < len(types) else shown_types)
