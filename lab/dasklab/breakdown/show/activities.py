"""Sentences about what late event loops and waiting tasks were doing, from sampled stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dasklab.breakdown.answers.advice.rules import process
from dasklab.breakdown.answers.facts.activities import SampledActivity, activities
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.sentence import Sentence
from dasklab.breakdown.show.wording import ACTIVITIES
from dasklab.terminal import counted, enumerated

TOPIC = "stacks"
MAX_SENTENCES, MOST_NAMES = 3, 3


def activity_sentences(repeat: Repeat) -> Iterator[Sentence]:
    """Say what loops and tasks of a repeat were doing, where samples of it agree."""
    alike: dict[tuple[str, str, str], list[SampledActivity]] = {}
    for activity in activities(repeat):
        alike.setdefault((activity.kind, activity.reason, what(activity)), []).append(activity)
    for group in list(alike.values())[:MAX_SENTENCES]:
        yield Sentence(TOPIC, sentence(group))


def sentence(alike: Sequence[SampledActivity]) -> str:
    """Return one sentence on loops, or on tasks of a kind, with the number of samples that it rests on."""
    first, doing = alike[0], what(alike[0])
    agree, samples = sum(some.agree for some in alike), sum(some.samples for some in alike)
    basis = f"in {agree} of {counted(samples, 'sample')}"
    if not first.kind:
        names = [process(some.place) for some in alike]
        who = enumerated(names) if len(names) <= MOST_NAMES else counted(len(names), "process", "processes")
        loops, about = ("loop", "about") if len(alike) == 1 else ("loops", "up to")
        verb = "was" if len(alike) == 1 else "were"
        seconds = f"{about} {first.seconds:.1f} s"
        return f"The event {loops} of {who} {verb} blocked for {seconds} by {doing}, {basis}."
    if first.activity == "lock":
        lock = f" ({first.name})" if first.name else ""
        return f"Tasks {first.kind} waited for a lock of their process{lock}, {basis}."
    if first.reason == "held":
        where = f" in {first.code}" if first.code else ""
        return f"Tasks {first.kind} kept the interpreter{where}, in calls that do not release it, {basis}."
    return f"Tasks {first.kind} waited in {doing}, {basis}."


def what(activity: SampledActivity) -> str:
    """Return what was done as the object of a sentence, such as ``importing pandas``."""
    word = ACTIVITIES.get(activity.activity, "")
    if not word:
        return activity.code
    package = f" {activity.name}" if activity.name else ""
    return f"{word}{package}" + (f" in {activity.code}" if activity.code and not package else "")
