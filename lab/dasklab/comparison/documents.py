"""What ``dasklab explain RECORD --json`` prints of two sides: an object per line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dasklab.breakdown.show.documents import RecordEnd, Seconds, seconds_of
from dasklab.comparison import wording
from dasklab.comparison.comparison import CauseChange, Causes


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
