"""Sentences about events, queues and variables that tasks waited for; locks have a piece of advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dasklab.breakdown.answers.facts.facts import PrimitiveUse
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.sentence import Sentence, share_of_threads

TOPIC = "waits"
LEAST_S = 0.1  # thread-seconds; shorter waits are not mentioned
MAX_SENTENCES = 3


def wait_sentences(repeat: Repeat, primitives: Sequence[PrimitiveUse]) -> Iterator[Sentence]:
    """Name what tasks waited for until somebody set it, or put something in."""
    uses = [use for use in primitives if not use.is_exclusive and use.waited_s >= LEAST_S]
    for use in uses[:MAX_SENTENCES]:
        yield Sentence(
            TOPIC,
            f"Tasks waited for the {use.kind} '{use.name}', {use.waited_s:.1f} thread-seconds in all.",
            share_of_threads(repeat, use.waited_s),
        )
