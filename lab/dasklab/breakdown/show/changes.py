"""What changed in the cluster during a record, in sentences: workers that came and went, and lost results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dasklab.breakdown.model.repeat import Repeat
from dasklab.terminal import enumerated

MAX_NAMED_WORKERS = 3


def changes(repeat: Repeat) -> Iterator[str]:
    """Return what a reader has to know of the cluster before the time breakdown."""
    yield from _workers(repeat, repeat.joined, "joined")
    yield from _workers(repeat, repeat.left, "left")
    again = repeat.evidence.again
    if len(again):
        seconds = float((repeat.tasks.stop - repeat.tasks.start)[again].sum())
        yield f"{len(again)} results were lost and computed again: {seconds:.1f} s of thread time."
    paused = repeat.evidence.paused
    for node in np.unique(paused.member).tolist():
        own = paused.member == node
        seconds = float((paused.stop - paused.start)[own].sum())
        yield f"{repeat.places.nodes[node]} was paused for {seconds:.1f} s: its memory was nearly full."


def _workers(repeat: Repeat, moments: Mapping[str, float], verb: str) -> Iterator[str]:
    """Name the workers that joined or left, those of the same second together."""
    inside = {
        name: time - repeat.start for name, time in moments.items() if repeat.start < time < repeat.stop
    }
    seconds = sorted({int(time) for time in inside.values()})
    for second in seconds:
        names = [name for name, time in inside.items() if int(time) == second]
        first = min(inside[name] for name in names)
        yield f"{_list(names)} {verb} {first:.1f} s after the start."


def _list(names: Sequence[str]) -> str:
    if len(names) > MAX_NAMED_WORKERS:
        return f"{len(names)} workers"
    return enumerated(names)
