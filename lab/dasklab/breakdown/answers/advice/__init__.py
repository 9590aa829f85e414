"""Advice in words: what would make a recorded computation faster, if anything would.

Theory of operation
-------------------
A rule looks at one repeat, its summary and what else its record knows. It returns the seconds of the repeat
that it accounts for, and a sentence with its figures; or nothing, below its threshold.
Seconds of threads are shares of the repeat's length, as everywhere in a breakdown. What would gain less than
10 % of the repeat is not worth a line. Of the rest, at most three are given, those that would gain most
first::

    measurements -> rule, threshold -> seconds, sentence -> the three greatest -> lines

Rules know only what the record shows; where it does not show the reason, a rule is silent. To add one, write
a function in the module of its subject, and a row into that module's ``RULES``. Of rules about the same
evidence, at most one speaks: their functions exclude each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from dasklab.breakdown.answers.advice import (
    client,
    collections,
    data,
    failures,
    imbalance,
    link,
    memory,
    processes,
    tasks,
    workers,
)
from dasklab.breakdown.answers.advice.rules import Advice, Measurements

RULES = (
    *failures.RULES,
    *client.RULES,
    *tasks.RULES,
    *collections.RULES,
    *imbalance.RULES,
    *workers.RULES,
    *processes.RULES,
    *memory.RULES,
    *data.RULES,
    *link.RULES,
)
MOST_LINES = 3


def advise(measurements: Measurements) -> Sequence[Advice]:
    """Return at most three pieces of advice, those that would gain most first."""
    pieces = [Advice(rule, symptom) for rule in RULES if (symptom := rule.look(measurements))]
    worthwhile = [piece for piece in pieces if piece.seconds >= measurements.least_s]
    return sorted(worthwhile, key=lambda piece: -piece.seconds)[:MOST_LINES]
