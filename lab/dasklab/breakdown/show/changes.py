"""What changed in the cluster during a record, in sentences: workers that came and went, and lost results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dasklab.breakdown.model.run import Run
from dasklab.terminal import enumerated

MOST_NAMES = 3  # of workers in a sentence


def changes(run: Run) -> Iterator[str]:
    """Return what a reader has to know of the cluster before the time breakdown."""
    yield from _workers(run, run.joined, "joined")
    yield from _workers(run, run.left, "left")
    again = run.evidence.again
    if len(again):
        seconds = float((run.tasks.stop - run.tasks.start)[again].sum())
        yield f"{len(again)} results were lost and computed again: {seconds:.1f} s of thread time."
    paused = run.evidence.paused
    for node in np.unique(paused.member).tolist():
        mine = paused.member == node
        seconds = float((paused.stop - paused.start)[mine].sum())
        yield f"{run.places.nodes[node]} was paused for {seconds:.1f} s: its memory was nearly full."


def _workers(run: Run, moments: Mapping[str, float], verb: str) -> Iterator[str]:
    """Name the workers that joined or left, those of the same second together."""
    inside = {name: time - run.start for name, time in moments.items() if run.start < time < run.stop}
    seconds = sorted({int(time) for time in inside.values()})
    for second in seconds:
        names = [name for name, time in inside.items() if int(time) == second]
        first = min(inside[name] for name in names)
        yield f"{_list(names)} {verb} {first:.1f} s after the start."


def _list(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{len(names)} workers"
    return enumerated(names)
