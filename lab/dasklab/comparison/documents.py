"""What ``dasklab explain RECORD --json`` prints of two sides: an object per line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dasklab.breakdown.show.documents import RecordEnd, Seconds, seconds_of
from dasklab.comparison import wording
from dasklab.comparison.comparison import CauseChange, Causes
from dasklab.comparison.variation import Variation
from dasklab.comparison.variation import sentence as variation_sentence


@dataclass(frozen=True)
class ComparedCause:
    """By how many seconds a bottleneck differs on the critical path."""

    bottleneck: str
    place: str
    seconds: float
    low_s: Annotated[float | None, Field(description="Null without an interval.")]
    high_s: Annotated[float | None, Field(description="Null without an interval.")]
    is_shown: Annotated[
        bool, Field(serialization_alias="shown", description="Whether it is more than chance explains.")
    ]

    @classmethod
    def of(cls, change: CauseChange) -> ComparedCause:
        """Return the change of a cause."""
        low, high = (None if math.isnan(end) else end for end in (change.seconds.low, change.seconds.high))
        name, seconds = change.bottleneck.name, change.seconds.value
        return cls(name, change.place, seconds, low, high, change.is_shown)


@dataclass(frozen=True)
class ExplainedDifference(Seconds):
    """What the second side spends more than the first."""

    name: str
    sentence: str
    before: Annotated[RecordEnd | None, Field(description="Of two trials or records.")]
    after: Annotated[RecordEnd | None, Field(description="Of two trials or records.")]
    changes: list[ComparedCause]


@dataclass(frozen=True)
class VariedSeconds:
    """The seconds of a bottleneck on the critical path of each record."""

    bottleneck: str
    seconds: list[float]
    part: Annotated[float, Field(description="Part of the variance of the lengths; all add up to 1.")]


@dataclass(frozen=True)
class ExplainedVariation:
    """How several records of one program vary."""

    names: Annotated[list[str], Field(description="The records, in the order of all lists of seconds.")]
    sentence: str
    lengths_s: list[float]
    causes: Annotated[list[VariedSeconds], Field(description="Those that vary with the lengths first.")]


def of_variation(variation: Variation) -> ExplainedVariation:
    """Return how several records vary."""
    causes = [
        VariedSeconds(cause.bottleneck.name, list(cause.seconds), cause.part) for cause in variation.causes
    ]
    return ExplainedVariation(
        list(variation.names), variation_sentence(variation), variation.lengths_s, causes
    )


def of_causes(
    causes: Causes, name: str, before: RecordEnd | None = None, after: RecordEnd | None = None
) -> ExplainedDifference:
    """Return what differs, and whether the records of both sides are complete."""
    return ExplainedDifference(
        **vars(seconds_of(causes.difference)),
        name=name,
        sentence=wording.sentence(causes),
        before=before,
        after=after,
        changes=[ComparedCause.of(change) for change in causes.changes],
    )
