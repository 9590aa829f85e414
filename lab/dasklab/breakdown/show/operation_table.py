"""The table of a record's operations: a row for each line of the user's program that sent some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from dasklab.breakdown.model.causes import COMPUTE
from dasklab.breakdown.prepare.operations import Operation
from dasklab.breakdown.show.wording import LEAST_S, Row, bottleneck, percent, place_in_code

if TYPE_CHECKING:
    from dasklab.breakdown.show.explain import Explained

HEAD: Row = ("operation", "code", "tasks", "began at, s", "seconds", "computing", "most on the path")
MOST_ROWS = 10
MOST_OVERLAP = 0.05  # share of an operation; with more, nothing tells which thread worked for it


def rows(record: Explained) -> Iterator[Row]:
    """Return a row per operation, in their order."""
    for operation in record.operations:
        yield _row(record, [operation])


def largest_rows(record: Explained) -> Iterator[Row]:
    """Return a row per line that sent operations, at most ``MOST_ROWS``, that with most seconds first.

    The share of computing and the path are those of a line's operation of middle length.
    """
    groups = sorted(_of_one_line(record.operations), key=_seconds, reverse=True)
    large = len(groups) if len(groups) <= MOST_ROWS else MOST_ROWS - 1
    for group in groups[:large]:
        yield _row(record, group)
    if others := [operation for group in groups[large:] for operation in group]:
        begin = min(operation.start for operation in others) - record.timed[0].start
        tasks = sum(operation.tasks for operation in others)
        yield (f"{len(others)} others", "", str(tasks), f"{begin:.2f}", f"{_seconds(others):.2f}", "", "")


def _of_one_line(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Return the operations that one client's line and span sent, together."""

    def sender(operation: Operation) -> tuple[bool, str, str, int]:
        file, number, _ = operation.code
        is_known = operation.is_foreign or file or operation.span
        return operation.is_foreign, operation.span, file, number if is_known else -operation.number

    return [list(group) for _, group in groupby(sorted(operations, key=sender), sender)]


def _seconds(operations: Sequence[Operation]) -> float:
    return sum(operation.stop - operation.start for operation in operations)


def _row(record: Explained, operations: Sequence[Operation]) -> Row:
    """Return the row of some operations of one line.

    While several overlap, threads and the path are shared: nothing tells what belongs to which.
    """
    lengths = sorted(operation.stop - operation.start for operation in operations)
    middle = sorted(operations, key=lambda operation: operation.stop - operation.start)[len(operations) // 2]
    first = operations[0]
    range_of_one = f", each {lengths[0]:.2f} to {lengths[-1]:.2f}" if len(operations) > 1 else ""
    computing, path = "", ""
    if not any(_overlap(middle, other) for other in record.operations if other is not middle):
        computing, path = _shares(record, middle)
        if len(operations) > 1 and path:
            path += f" (number {middle.number})"
    return (
        _numbers(operations) + (f": {first.span}" if first.span else ""),
        "another client" if first.is_foreign else place_in_code(first.code),
        str(sum(operation.tasks for operation in operations)),
        f"{first.start - record.timed[0].start:.2f}",
        f"{_seconds(operations):.2f}{range_of_one}",
        computing,
        path,
    )


def _numbers(operations: Sequence[Operation]) -> str:
    """Return ``7``, or ``40 of 3 to 42``."""
    first, last = operations[0].number, operations[-1].number
    return str(first) if len(operations) == 1 else f"{len(operations)} of {first} to {last}"


def _shares(record: Explained, operation: Operation) -> tuple[str, str]:
    """Return which share of the threads' time an operation computed, and what its path has most of."""
    summary = record.summary_of(operation)
    computed_s = summary.by_cause.get(COMPUTE, 0.0)
    largest = [row for row in summary.ranked()[:2] if row[2] > LEAST_S]
    computing = percent(computed_s / summary.makespan_s if summary.makespan_s else 0.0)
    return computing, ", ".join(bottleneck(row, 2) for row in largest)


def _overlap(operation: Operation, other: Operation) -> bool:
    common_s = min(operation.stop, other.stop) - max(operation.start, other.start)
    return common_s > MOST_OVERLAP * (operation.stop - operation.start)
