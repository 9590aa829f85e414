"""Can records be compared? Only whole records of the same work, each of them once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from dasklab.breakdown.explain import Explained
from dasklab.records.document import RECORD

MAX_NAMED_KINDS = 3  # of tasks that differ


def obstacle(new: Sequence[Explained], old: Sequence[Explained], allow_different_work: bool = False) -> str:
    """Return why records must not be compared, and what to do; empty if they may be."""
    different = "" if allow_different_work else _different_work([*new, *old])
    return _cut(new, old) or _same(new, old) or different


def _cut(new: Sequence[Explained], old: Sequence[Explained]) -> str:
    for record in chain(new, old):
        if record.complete is False:
            return f"{record.directory} was cut off; record that run again"
    return ""


def _same(new: Sequence[Explained], old: Sequence[Explained]) -> str:
    seen: dict[str, Explained] = {}
    for record in chain(new, old):
        file = record.directory / RECORD
        if not file.exists():
            continue
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest in seen:
            first, second = seen[digest].directory, record.directory
            return f"{first} and {second} are the same record; give each record once"
        seen[digest] = record
    return ""


def _different_work(records: Sequence[Explained]) -> str:
    first, *others = records
    for other in others:
        if difference := _difference(first, other):
            return (
                f"{first.directory} and {other.directory} hold different work ({difference}); "
                "--allow-different-work compares them all the same"
            )
    return ""


def _difference(first: Explained, second: Explained) -> str:
    operations = [len(record.operations) for record in (first, second)]
    if operations[0] != operations[1]:
        return f"{operations[0]} and {operations[1]} operations"
    one, two = _tasks(first), _tasks(second)
    kinds = [kind for kind in sorted(one | two) if one[kind] != two[kind]]
    return ", ".join(f"{kind}: {one[kind]} and {two[kind]} tasks" for kind in kinds[:MAX_NAMED_KINDS])


def _tasks(record: Explained) -> Counter[str]:
    """Return the number of tasks of each kind. A key that was computed twice counts once."""
    return Counter(chain.from_iterable(run.prefixes for run in record.timed))
