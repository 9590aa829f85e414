"""Workers that died: what the scheduler's events say of the ends of workers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import floats

NANNY_S = 15.0  # a worker that its nanny ends has left by then, or the nanny kills it
DEATH_EVENTS = ("worker-status-change", "worker-restart-memory", "remove-worker")


@dataclass(frozen=True)
class Death:
    """A worker that left without having been asked to, and did not say before that it closes.

    Attributes:
        rss_bytes, limit_bytes: its memory when its nanny ended it, and its limit; 0 where memory was not
            why, or not recorded.
        processing: tasks that it had not finished; None if unknown.
        lost: results that were lost with it; None if unknown.
    """

    time: float
    worker: str
    rss_bytes: float
    limit_bytes: float
    processing: int | None
    lost: int | None


def deaths_of(events: pd.DataFrame, workers: pd.DataFrame) -> Iterator[Death]:
    """Yield the workers that died.

    Args:
        events: in the order of their times.
        workers: whose names to use instead of addresses.
    """
    names = dict(zip(workers.address, workers.worker, strict=True))
    by_nanny: dict[str, tuple[float, Mapping[str, Any]]] = {}
    status: dict[str, str] = {}
    rows = zip(events.kind, floats(events.time_s).tolist(), events.subject, events.detail, strict=True)
    for kind, time, subject, text in rows:
        if kind not in DEATH_EVENTS:
            continue
        detail = detail_of(text)
        if kind == "worker-status-change":
            status[str(subject)] = str(detail.get("status"))
        if kind == "worker-restart-memory":
            by_nanny.setdefault(str(subject), (time, detail))
        if kind != "remove-worker" or detail.get("expected") is not False:
            continue
        worker = names.get(str(detail.get("worker")), str(detail.get("worker")))
        since, memory = by_nanny.pop(worker, (-np.inf, {}))
        is_memory = time - since < NANNY_S
        if status.pop(worker, "").startswith("closing") and not is_memory:
            continue
        yield Death(
            time,
            worker,
            _number(memory.get("rss")) or 0.0 if is_memory else 0.0,
            _number(memory.get("limit")) or 0.0 if is_memory else 0.0,
            _count(detail.get("processing-tasks")),
            _count(detail.get("lost-computed-tasks")),
        )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def detail_of(text: str) -> Mapping[str, Any]:
    """Return the details of an event, which are JSON; none of one that has none."""
    return dict(json.loads(text)) if text.startswith("{") else {}
