"""What a rule looks at, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dasklab.breakdown.answers.facts import Facts
from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.arrays import Floats
from dasklab.breakdown.model.causes import Bottleneck, Cause
from dasklab.breakdown.model.repeat import CLIENT, SCHEDULER, Repeat

LEAST_SHARE, LEAST_S = 0.1, 0.1  # of the repeat: what is about less is not worth a line
DASK, DISTRIBUTED = "https://docs.dask.org/en/stable", "https://distributed.dask.org/en/stable"


class Symptom(NamedTuple):
    """The seconds of a repeat that a rule is about, and a sentence with the figures."""

    seconds: float
    sentence: str


def process(place: str) -> str:
    """Return the name of a process as a sentence needs it."""
    return f"the {place}" if place in (CLIENT, SCHEDULER) else place


@dataclass(frozen=True)
class Measurements:
    """What rules look at: one repeat, its summary, and what else its record knows."""

    repeat: Repeat
    summary: Summary
    facts: Facts

    def path_s(self, *causes: Cause) -> float:
        """Return the seconds of the critical path with these causes."""
        return sum(self.summary.path_by_cause.get(cause, 0.0) for cause in causes)

    def thread_s(self, *causes: Cause) -> float:
        """Return the seconds with these causes, as shares of all threads' time."""
        return sum(self.summary.by_cause.get(cause, 0.0) for cause in causes)

    def bottleneck(self, bottleneck: Bottleneck) -> tuple[float, str]:
        """Return the seconds of the critical path that a bottleneck explains, and where most of them are."""
        ranked = {row[0]: (row[2], row[1]) for row in self.summary.ranked()}
        return ranked.get(bottleneck, (0.0, ""))

    @cached_property
    def task_s(self) -> Floats:
        """How long each task took."""
        return self.repeat.tasks.stop - self.repeat.tasks.start

    @property
    def length(self) -> str:
        """The length of the repeat, as sentences name it."""
        return f"of {self.summary.makespan_s:.1f} s"


@dataclass(frozen=True)
class AdviceRule:
    """A kind of advice.

    Attributes:
        title: what is wrong.
        threshold: from where on; every rule needs ``LEAST_SHARE`` of the repeat, too.
        remedy: what to do.
        page: where Dask's documentation says how.
    """

    title: str
    threshold: str
    remedy: str
    page: str
    look: Callable[[Measurements], Symptom | None]


@dataclass(frozen=True)
class Advice:
    """A rule that applies to a repeat, and why."""

    rule: AdviceRule
    seconds: float
    sentence: str

    def fields(self) -> dict[str, str | float]:
        """Return all of it for programs."""
        rule = self.rule
        text = {"title": rule.title, "sentence": self.sentence, "remedy": rule.remedy, "page": rule.page}
        return {**text, "seconds": self.seconds, "threshold": self.threshold}

    @property
    def threshold(self) -> str:
        """From where on this advice is given."""
        share = f"{100 * LEAST_SHARE:.0f} % of the time"
        return f"{self.rule.threshold}, and {share}" if self.rule.threshold else share

    def __str__(self) -> str:
        return f"{self.sentence} (threshold: {self.threshold}). {self.rule.remedy} {self.rule.page}"
