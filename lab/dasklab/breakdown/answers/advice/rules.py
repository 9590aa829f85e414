"""What a rule looks at, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dasklab.breakdown.answers.bottlenecks.grounds import Item
from dasklab.breakdown.answers.facts.activities import SampledActivity, activities
from dasklab.breakdown.answers.facts.facts import Facts
from dasklab.breakdown.answers.summary import Summary, hosts
from dasklab.breakdown.model.arrays import Codes, Floats, Mask
from dasklab.breakdown.model.causes import STARVED, Bottleneck, Cause
from dasklab.breakdown.model.repeat import CLIENT, SCHEDULER, Repeat
from dasklab.breakdown.model.step_function import StepFunction

LEAST_SHARE, LEAST_S = 0.1, 0.1  # of the repeat: what is about less is not worth a line
NEARLY_ALL = 0.8  # of the seconds of a bottleneck


@dataclass(frozen=True)
class Symptom:
    """What a rule has noticed.

    Attributes:
        seconds: of the repeat, that it accounts for.
        sentence: says it, with the figures.
        tasks: rows of the tasks that it is about; empty if it is about causes, which the rule names.
        events: what happened to processes or tasks, where that is the evidence.
    """

    seconds: float
    sentence: str
    tasks: Codes = field(default_factory=lambda: np.zeros(0, np.int64))
    events: Sequence[Item] = ()


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

    def where(self, bottleneck: Bottleneck) -> str:
        """Say where a bottleneck is: at one process only if nearly all of its seconds are there."""
        seconds, place = self.bottleneck(bottleneck)
        shares = dict(hosts(self.summary.bottlenecks, bottleneck))
        if shares.get(place, 0.0) >= NEARLY_ALL * seconds:
            return process(place)
        return "several workers" if set(shares) <= set(self.repeat.threads) else "several processes"

    @cached_property
    def has_failed(self) -> Mask:
        """For each task whether an attempt of it made no result."""
        tasks = self.repeat.tasks
        return np.asarray(np.isin(tasks.key, tasks.key[~tasks.has_result]), bool)

    @cached_property
    def activities(self) -> list[SampledActivity]:
        """What late event loops and waiting tasks were doing."""
        return activities(self.repeat)

    @property
    def least_s(self) -> float:
        """From how many seconds on a piece of advice is worth a line.

        Time in which other programs had the CPUs does not count: it would hide all other advice.
        """
        own_s = self.summary.makespan_s - min(self.path_s(STARVED), self.summary.makespan_s / 2)
        return max(LEAST_S, LEAST_SHARE * own_s)

    @cached_property
    def task_s(self) -> Floats:
        """How long each task took."""
        return self.repeat.tasks.stop - self.repeat.tasks.start

    @property
    def threads(self) -> int:
        return sum(self.repeat.threads.values())

    @cached_property
    def running(self) -> StepFunction:
        """How many tasks ran, over time."""
        tasks = self.repeat.tasks
        return StepFunction.from_increments(
            np.concatenate([tasks.start, tasks.stop]), np.repeat([1, -1], len(tasks))
        )

    @cached_property
    def concurrency(self) -> float:
        """How many tasks ran at a time, while any did; at least 1."""
        some_s = float(np.diff(self.running.time)[self.running.value[:-1] > 0].sum())
        return max(1.0, float(self.task_s.sum()) / some_s) if some_s else 1.0

    @property
    def has_all_workers(self) -> bool:
        """Whether the same workers were there from the start to the end."""
        repeat = self.repeat
        moments = (*repeat.joined.values(), *repeat.left.values())
        has_changed = any(repeat.start < moment < repeat.stop for moment in moments)
        return not has_changed and not len(repeat.evidence.away.start)

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
        page: where the documentation says how; empty if it does not.
        rests_on: bottlenecks of the critical path and causes of threads that are its evidence; none if a
            symptom names tasks or events.
    """

    title: str
    threshold: str
    remedy: str
    page: str
    look: Callable[[Measurements], Symptom | None]
    rests_on: Sequence[Bottleneck | Cause] = ()


@dataclass(frozen=True)
class Advice:
    """A rule that applies to a repeat, and why."""

    rule: AdviceRule
    symptom: Symptom

    @property
    def seconds(self) -> float:
        """How many seconds of the repeat its symptom accounts for; following it may gain more or less."""
        return self.symptom.seconds

    @property
    def sentence(self) -> str:
        """What is wrong, with the figures."""
        return self.symptom.sentence

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
        amount = f"This accounts for {self.seconds:.1f} s."
        return f"{self.sentence}. {self.rule.remedy} {amount} {self.rule.page}".strip()
