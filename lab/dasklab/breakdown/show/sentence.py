"""A sentence about something that a reader has to know of a repeat besides where its time went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dasklab.breakdown.model.repeat import Repeat


@dataclass(frozen=True)
class Sentence:
    """A sentence, and how much of the run it explains."""

    topic: Annotated[
        str, Field(description="block, clients, failures, stacks, waits, changes, memory or unused.")
    ]
    text: str
    seconds: Annotated[
        float,
        Field(
            description="Seconds of the run that it is about; those of threads as a share of all threads. "
            "0 where it is about no time, or where nobody knows of how much."
        ),
    ] = 0.0

    def __str__(self) -> str:
        return self.text


def share_of_threads(repeat: Repeat, seconds: float) -> float:
    """Return seconds of single threads as seconds of the run, as in the breakdown; 0 if they are unknown."""
    threads = max(1, sum(repeat.threads.values()))
    return seconds / threads if seconds > 0 else 0.0
