"""What changed in the cluster during a record, in sentences: workers that came and went, and lost results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasklab.breakdown.answers.facts.failures import Failures
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.sentence import Sentence, share_of_threads
from dasklab.terminal import counted, enumerated

TOPIC = "changes"
LEAST_S = 0.05  # shorter pauses are not mentioned
MAX_NAMED_WORKERS = 3
MAX_MOVES = 6  # with a sentence each
TOGETHER_S = 1.0


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
    yield from (Sentence(TOPIC, text) for text in _workers(repeat, failures))


def _workers(repeat: Repeat, failures: Failures) -> Iterator[str]:
    """Name the workers that joined or left, those that did so within a second together."""
    away = repeat.evidence.away
    names = [repeat.places.nodes[node] for node in away.member.tolist()]
    absences = [
        absence
        for absence in zip(names, away.start.tolist(), away.stop.tolist(), strict=True)
        if absence[1] < repeat.left.get(absence[0], np.inf)  # it came back
    ]
    departures = [(name, time) for name, time, _ in absences]
    returns = [(name, time) for name, _, time in absences]
    died = [(death.worker, death.time) for death in failures.deaths]
    left = [
        (name, time)
        for name, time in (*repeat.left.items(), *departures)
        if not any(name == dead and abs(time - moment) < TOGETHER_S for dead, moment in died)
    ]
    moves = [(time, "joined", name) for name, time in (*repeat.joined.items(), *returns)]
    moves = sorted([*moves, *((time, "left", name) for name, time in left)])
    moves = [move for move in moves if repeat.start < move[0] < repeat.stop]
    texts, joined = [], sum(verb == "joined" for _, verb, _ in moves)
    total = f"Workers joined {counted(joined, 'time')} and left {counted(len(moves) - joined, 'time')}."
    while moves:
        first, verb, _ = moves[0]
        together = [move for move in moves if move[1] == verb and move[0] < first + TOGETHER_S]
        moves = [move for move in moves if move not in together]
        workers = list(dict.fromkeys(name for *_, name in together))
        who = enumerated(workers) if len(workers) <= MAX_NAMED_WORKERS else f"{len(workers)} workers"
        times = {f"{time - repeat.start:.1f}": None for time in (first, together[-1][0])}
        texts.append(f"{who} {verb} {' to '.join(times)} s after the start.")
    yield from texts if len(texts) <= MAX_MOVES else [total]
