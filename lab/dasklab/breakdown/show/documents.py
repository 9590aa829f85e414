"""What ``dasklab explain RECORD --json`` prints of one trial, record or run: an object per line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from pydantic import ConfigDict, Field

from dasklab.breakdown.answers.advice.rules import Advice
from dasklab.breakdown.answers.bottlenecks.grounds import Grounds, Item
from dasklab.breakdown.answers.facts.activities import SampledActivity, activities
from dasklab.breakdown.answers.facts.memory import KindPeak, kind_peaks
from dasklab.breakdown.answers.summary import ByCause, Ranked, Summary
from dasklab.breakdown.prepare.operations import Operation
from dasklab.breakdown.show import wording
from dasklab.breakdown.show.answer import Sentences, answer
from dasklab.breakdown.show.explain import Explained
from dasklab.model.forms.json_output import CONFIG

Row = tuple[str, str, float]
Rows = Annotated[list[Row], Field(description="Name of a cause or bottleneck, place, seconds.")]
OfReplay = Annotated[float | None, Field(description="Null without a replay that meets the measured time.")]


@dataclass(frozen=True)
class Seconds:
    """Where time went, or by how much that differs."""

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    makespan_s: float
    breakdown: Rows
    critical_path: Rows
    bottlenecks: Rows


@dataclass(frozen=True)
class RecordEnd:
    """Whether nothing is missing at the end of a record."""

    complete: Annotated[bool | None, Field(description="Null if unknown, and of a trial.")]
    complete_until: Annotated[
        float | None, Field(description="Seconds since 1970; null if nothing is missing.")
    ]


@dataclass(frozen=True)
class ExplainedTrial(Sentences, RecordEnd, Seconds):
    """A trial, a record, or the baseline of a run."""

    name: str
    first: Annotated[list[str], Field(description="Bottlenecks of which each may be the largest.")]
    violations: Annotated[dict[str, int], Field(description="How often each invariant had to be enforced.")]
    advice: list[dict[str, str | float]]
    memory: Annotated[list[KindPeak], Field(description="Peaks of workers, by kind of task.")]
    activities: Annotated[list[SampledActivity], Field(description="What late loops and waiting tasks did.")]
    as_it_was_s: OfReplay
    without_wire_s: OfReplay
    transfer_s: OfReplay
    has_client: bool | None


@dataclass(frozen=True)
class ExplainedOperation(Seconds):
    """A computation of a record."""

    name: str
    operation: int


@dataclass(frozen=True)
class Clause:
    """A clause of the answer, with all that it rests on."""

    clause: str
    of_threads: Annotated[bool, Field(description="Whether it is about the time of all threads.")]
    seconds: float
    rests_on: list[Item]


@dataclass(frozen=True)
class ExplainedClauses:
    """The evidence of an answer, which ``--why`` lists."""

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    name: str
    why: list[Clause]


def of_trial(explained: Explained, name: str) -> ExplainedTrial:
    """Return a trial or record; its computations have documents of their own."""
    repeat = explained.median_repeat
    details = kind_peaks(repeat, explained.facts.memory), activities(repeat)
    return _of_summary(
        name, explained.summary, answer(explained), record_end(explained), explained.advice, *details
    )


def of_baseline(summary: Summary, name: str) -> ExplainedTrial:
    """Return the baseline of a run."""
    words = Sentences("", wording.paragraph(summary), [])
    return _of_summary(name, summary, words, RecordEnd(None, None), (), [], [])


def of_operation(explained: Explained, operation: Operation) -> ExplainedOperation:
    """Return a computation of a record."""
    seconds = seconds_of(explained.summary_of(operation))
    return ExplainedOperation(**vars(seconds), name=operation.title, operation=operation.number)


def of_clauses(clauses: Sequence[Grounds], name: str) -> ExplainedClauses:
    """Return the evidence of clauses."""
    documents = [
        Clause(clause.clause, clause.of_threads, clause.seconds, list(clause.items)) for clause in clauses
    ]
    return ExplainedClauses(name, documents)


def record_end(explained: Explained) -> RecordEnd:
    """Return whether a record is complete, and until when."""
    document = explained.document
    return RecordEnd(document.complete, document.complete_until) if document else RecordEnd(None, None)


class Divided(Protocol):
    """Time by cause and place: a summary, or the difference of two."""

    @property
    def makespan_s(self) -> float: ...
    @property
    def breakdown(self) -> ByCause: ...
    @property
    def path(self) -> ByCause: ...
    def ranked(self) -> Ranked: ...


def seconds_of(result: Divided) -> Seconds:
    """Return the seconds of a breakdown, or of a difference."""
    return Seconds(
        result.makespan_s,
        _rows(result.breakdown),
        _rows(result.path),
        [(bottleneck.name, place, seconds) for bottleneck, place, seconds in result.ranked()],
    )


def _rows(cells: ByCause) -> list[Row]:
    return [(cause.name, place, seconds) for (cause, place), seconds in cells.items()]


def _of_summary(
    name: str,
    summary: Summary,
    words: Sentences,
    complete: RecordEnd,
    advice: Sequence[Advice],
    memory: list[KindPeak],
    doing: list[SampledActivity],
) -> ExplainedTrial:
    replay = summary.replayed
    return ExplainedTrial(
        **vars(seconds_of(summary)),
        **vars(complete),
        **vars(words),
        name=name,
        first=[bottleneck.name for bottleneck, _, _ in summary.first()],
        violations=summary.violated,
        advice=[piece.fields() for piece in advice],
        memory=memory,
        activities=doing,
        as_it_was_s=replay.as_it_was_s if replay else None,
        without_wire_s=replay.without_wire_s if replay else None,
        transfer_s=replay.transfer_s if replay else None,
        has_client=replay.has_client if replay else None,
    )
