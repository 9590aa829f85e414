"""What the clauses of an explanation rest on, as a table: ``run.why()``, and ``explain`` with ``--why``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dasklab.breakdown.answers.advice.rules import Advice
from dasklab.breakdown.answers.bottlenecks.grounds import (
    Grounds,
    Item,
    of_network,
    of_path,
    of_tasks,
    of_threads,
)
from dasklab.breakdown.answers.facts.activities import activities
from dasklab.breakdown.answers.invariants import checked
from dasklab.breakdown.model.causes import Cause
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.wording import LEAST_SHARE, MAX_SENTENCE_PARTS, Row, percent
from dasklab.errors import LabError

HEAD: Row = ("clause", "rests on", "name", "where", "thread", "from, s", "until, s", "seconds")
STACKS = "what loops and tasks were doing"
MAX_ITEMS_OF_A_CLAUSE = 8  # the rest is summed up


def why(repeat: Repeat, clause: str = "", advice: Sequence[Advice] = ()) -> list[Grounds]:
    """Return what a repeat's explanation rests on: critical path, threads, network, stacks, advice.

    Args:
        clause: a part of its words, such as "waiting for a lock"; empty for all clauses of the sentence.
        advice: what the explanation advises.

    Raises:
        LabError: the explanation has no such clause.
    """
    breakdown, _ = checked(repeat)
    path, threads = list(of_path(repeat, breakdown.path)), list(of_threads(repeat, breakdown.threads))
    beside = (of_network(repeat), of_stacks(repeat), *of_advice(repeat, advice, (*path, *threads)))
    others = [grounds for grounds in beside if grounds.items]
    if not clause:
        return [
            *(
                grounds
                for grounds in path[:MAX_SENTENCE_PARTS]
                if grounds.seconds > LEAST_SHARE * repeat.makespan
            ),
            *threads[:MAX_SENTENCE_PARTS],
            *others,
        ]
    words = clause.casefold().strip()
    every = [(grounds, [name.casefold() for name in grounds.names]) for grounds in (*path, *threads, *others)]
    exactly = [grounds for grounds, names in every if words in names]
    matches = exactly or [grounds for grounds, names in every if any(words in name for name in names)]
    if not matches:
        titles = dict.fromkeys(grounds.clause for grounds in (*path, *threads, *others))
        raise LabError(f"the explanation has no clause '{clause}'; it has: {'; '.join(titles)}")
    return matches


def of_stacks(repeat: Repeat) -> Grounds:
    """Return what the sentences about loops and waiting tasks rest on: samples, which may overlap."""
    items = [
        Item(
            "samples",
            " ".join(filter(None, [f"{some.agree} of {some.samples}:", some.activity, some.name, some.code])),
            some.place or "several workers",
            "",
            some.start_s,
            some.stop_s,
            some.seconds,
        )
        for some in activities(repeat)
    ]
    return Grounds(STACKS, (STACKS,), False, sum(item.seconds for item in items), 0.0, items)


def of_advice(repeat: Repeat, advice: Sequence[Advice], clauses: Sequence[Grounds]) -> Iterator[Grounds]:
    """Return what each piece of advice rests on: tasks, events, or clauses of the breakdown."""
    for piece in advice:
        symptom, rule = piece.symptom, piece.rule
        titles = {(isinstance(part, Cause), part.title) for part in rule.rests_on}
        parts = (item for some in clauses if (some.of_threads, some.clause) in titles for item in some.items)
        items = [*symptom.events, *of_tasks(repeat, symptom.tasks), *parts]
        seconds = sum(item.seconds for item in items)
        title = f"advice: {rule.title}"
        yield Grounds(title, (title, rule.title), False, seconds, 0.0, items)


def rows(clauses: Sequence[Grounds]) -> Iterator[Row]:
    """Return a table: for each clause the longest of what it rests on, the rest, and the sum."""
    for grounds in clauses:
        whole = "all threads' time" if grounds.of_threads else "the run"
        for item in grounds.items[:MAX_ITEMS_OF_A_CLAUSE]:
            times = (f"{seconds:.3f}" for seconds in (item.start_s, item.stop_s, item.seconds))
            yield (grounds.clause, item.kind, item.name, item.place, item.thread, *times)
        if rest := grounds.items[MAX_ITEMS_OF_A_CLAUSE:]:
            seconds = sum(item.seconds for item in rest)
            yield (grounds.clause, f"{len(rest)} more", "", "", "", "", "", f"{seconds:.3f}")
        share = f"{percent(grounds.seconds / grounds.total_s, 1)} of {whole}" if grounds.total_s else ""
        yield (grounds.clause, "together", share, "", "", "", "", f"{grounds.seconds:.3f}")
