"""Can records be compared? Only whole records of the same work, each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from dasklab import records
from dasklab.breakdown.show.explain import Explained
from dasklab.results.pack import sha256
from dasklab.results.run import Trial

MAX_NAMED_KINDS = 3  # of tasks that differ


def obstacle(new: Sequence[Explained], old: Sequence[Explained], if_work_differs: str | None) -> str:
    """Return why records must not be compared, and what to do; empty if they may be.

    Args:
        if_work_differs: what to do about different work; None compares it all the same.
    """
    every = [*new, *old]
    return (
        _cut(every)
        or _same(every)
        or ("" if if_work_differs is None else _other_work(every, if_work_differs))
    )


def _cut(compared: Sequence[Explained]) -> str:
    for record in compared:
        document = record.document
        if document and document.complete is False and document.beyond_limit:
            return f"{record.trial} reached its size limit; record that run again with a larger max_mb"
        if document and document.complete is False:
            return f"{record.trial} was cut off; record that run again"
    return ""


def _same(compared: Sequence[Explained]) -> str:
    by_content: dict[str, Trial] = {}
    for record in compared:
        content = _digest(record.trial)
        if content in by_content:
            return f"{by_content[content]} and {record.trial} are the same record; give each record once"
        if content:
            by_content[content] = record.trial
    return ""


def _digest(trial: Trial) -> str:
    """Return the SHA-256 of what was recorded; empty if that is not in a file."""
    file = records.source_of(trial)
    if not file.exists():
        return ""
    with file.open("rb") as content:
        return sha256(content)


def _other_work(compared: Sequence[Explained], remedy: str) -> str:
    first, *others = compared
    for other in others:
        if difference := _difference(first, other):
            return f"{first.trial} and {other.trial} hold different work ({difference}); {remedy}"
    return ""


def _difference(first: Explained, second: Explained) -> str:
    """Return in what the work of two records differs.

    Operations are counted by their graphs: whether two graphs belong to one operation depends on how fast
    they follow each other, so slower work may have more operations.
    """
    graphs = [sum(len(repeat.graphs) for repeat in record.timed) for record in (first, second)]
    if graphs[0] != graphs[1]:
        return f"{graphs[0]} and {graphs[1]} graphs"
    before, after = _tasks(first), _tasks(second)
    kinds = [kind for kind in sorted(before | after) if before[kind] != after[kind]]
    return ", ".join(f"{kind}: {before[kind]} and {after[kind]} tasks" for kind in kinds[:MAX_NAMED_KINDS])


def _tasks(record: Explained) -> Counter[str]:
    """Return the number of tasks of each kind. A key that was computed twice counts once."""
    return Counter(chain.from_iterable(repeat.prefixes for repeat in record.timed))
