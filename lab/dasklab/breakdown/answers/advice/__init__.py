"""Advice in words: what would make a recorded computation faster, if anything would.

Theory of operation
-------------------
A rule looks at one repeat, its summary and what else its record knows. It returns the seconds of the repeat
that it is about, and a sentence with its figures; or nothing, below its threshold. Seconds of threads are
shares of the repeat's length, as everywhere in a breakdown. What is about less than 10 % of the repeat is not
worth a line. Of the rest, at most three are given, those about most seconds first::

    measurements -> rule, threshold -> seconds, sentence -> the three greatest -> lines

Rules know only what the record shows. To add one, write a function in the module of its subject, and a row
into that module's ``RULES``.
"""

from __future__ import annotations

from collections.abc import Sequence

from dasklab.breakdown.answers.advice import data, link, memory, processes, tasks
from dasklab.breakdown.answers.advice.rules import LEAST_S, LEAST_SHARE, Advice, Measurements

RULES = (*tasks.RULES, *processes.RULES, *memory.RULES, *data.RULES, *link.RULES)
MOST_LINES = 3


def advise(measurements: Measurements) -> Sequence[Advice]:
    """Return at most three pieces of advice, those about most seconds first."""
    least = max(LEAST_S, LEAST_SHARE * measurements.summary.makespan_s)
    pieces = [Advice(rule, *symptom) for rule in RULES if (symptom := rule.look(measurements))]
    worthwhile = [piece for piece in pieces if piece.seconds >= least]
    return sorted(worthwhile, key=lambda piece: -piece.seconds)[:MOST_LINES]
