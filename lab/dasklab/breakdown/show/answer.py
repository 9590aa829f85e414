"""What is said of a trial or record before any table, in the order in which it is read.

This module owns the order: terminal, notebook, report and ``--json`` take it from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show import wording
from dasklab.breakdown.show.activities import activity_sentences
from dasklab.breakdown.show.block import block_sentences
from dasklab.breakdown.show.capacity import capacity_clause
from dasklab.breakdown.show.changes import change_sentences
from dasklab.breakdown.show.clients import client_sentences
from dasklab.breakdown.show.explain import Explained
from dasklab.breakdown.show.failures import failure_sentences
from dasklab.breakdown.show.memory import memory_sentences
from dasklab.breakdown.show.sentence import Sentence
from dasklab.breakdown.show.unused import unused_sentences
from dasklab.breakdown.show.waits import wait_sentences


@dataclass(frozen=True)
class Sentences:
    """The answer in words, in the order in which it is read."""

    gap: Annotated[str, Field(description="What the record lacks; empty for a whole one.")]
    headline: Annotated[str, Field(description="How long it took, with which workers, and why.")]
    others: Annotated[
        list[Sentence],
        Field(description="What else happened; what explains most of the time comes first."),
    ]

    @property
    def texts(self) -> list[str]:
        """All sentences in their order."""
        return [*filter(None, [self.gap]), self.headline, *map(str, self.others)]


def answer(explained: Explained) -> Sentences:
    """Return what is said of a trial or record.

    Sentences on failures are about all of its timed repeats, other ones about that of middle length.
    """
    repeat, facts = explained.median_repeat, explained.facts
    workers = capacity_clause(repeat) if len(explained.timed) == 1 else ""
    others = [*_others(explained), *([] if explained.gap else unused_sentences(repeat, facts))]
    others.sort(key=lambda sentence: -_worth_s(sentence, repeat))
    return Sentences(explained.gap, wording.paragraph(explained.summary, workers), others)


def _worth_s(sentence: Sentence, repeat: Repeat) -> float:
    """Return by what sentences are sorted; those about little time stay in the order of ``_others``."""
    return sentence.seconds if sentence.seconds > wording.LEAST_SHARE * repeat.makespan else 0.0


def _others(explained: Explained) -> Iterator[Sentence]:
    repeat, facts = explained.median_repeat, explained.facts
    yield from block_sentences(repeat)
    for timed in explained.timed:
        name = f"Repeat {timed.number}: " if len(explained.timed) > 1 else ""
        for sentence in failure_sentences(timed, facts.failures):
            yield replace(sentence, text=f"{name}{sentence.text}")
    yield from client_sentences(repeat)
    yield from activity_sentences(repeat)
    yield from wait_sentences(repeat, facts.primitives)
    yield from change_sentences(repeat, facts.failures)
    yield from memory_sentences(repeat, facts.memory, facts.memory_thresholds)
