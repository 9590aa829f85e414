"""What changed in the cluster during a record, in sentences: workers that came and went, and lost results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dasklab.breakdown.answers.facts.failures import Failures
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.sentence import Sentence, share_of_threads
from dasklab.terminal import counted, enumerated

TOPIC = "changes"
LEAST_S = 0.05  # shorter pauses are not mentioned
MAX_NAMED_WORKERS = 3


def change_sentences(repeat: Repeat, failures: Failures) -> Iterator[Sentence]:
    """Say what changed; the deaths of workers are said as failures."""
    again = repeat.evidence.again
    if len(again):
        seconds = float((repeat.tasks.stop - repeat.tasks.start)[again].sum())
        results = counted(len(again), "result was", "results were")
        text = f"{results} lost and computed again: {seconds:.1f} s of thread time."
        yield Sentence(TOPIC, text, share_of_threads(repeat, seconds))
    paused = repeat.evidence.paused
    ends = np.array([repeat.start]), np.array([repeat.stop])
    for node in np.unique(paused.member).tolist():
        name = repeat.places.nodes[node]
        seconds = float(paused.within(np.array([node]), *ends)[0])
        if seconds < LEAST_S:
            continue
        text = f"{name} was paused for {seconds:.1f} s: its memory was nearly full."
        yield Sentence(TOPIC, text, share_of_threads(repeat, seconds * repeat.threads.get(name, 0)))
    died = {death.worker for death in failures.deaths}
    yield from _workers(repeat, repeat.joined, "joined")
    yield from _workers(
        repeat, {name: time for name, time in repeat.left.items() if name not in died}, "left"
    )


def _workers(repeat: Repeat, moments: Mapping[str, float], verb: str) -> Iterator[Sentence]:
    """Name the workers that joined or left, those of the same second together."""
    inside = {
        name: time - repeat.start for name, time in moments.items() if repeat.start < time < repeat.stop
    }
    seconds = sorted({int(time) for time in inside.values()})
    for second in seconds:
        names = [name for name, time in inside.items() if int(time) == second]
        first = min(inside[name] for name in names)
        yield Sentence(TOPIC, f"{_list(names)} {verb} {first:.1f} s after the start.")


def _list(names: Sequence[str]) -> str:
    if len(names) > MAX_NAMED_WORKERS:
        return f"{len(names)} workers"
    return enumerated(names)
