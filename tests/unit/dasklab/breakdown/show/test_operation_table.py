"""Operations of one line of code share a row, those with most seconds come first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from dasklab.breakdown.prepare.operations import Operation
from dasklab.breakdown.show import operation_table
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.results.run import Trial

RECORDS = Path(__file__).parents[4] / "data" / "records"


@pytest.fixture(scope="module")
def record() -> Explained:
    return explain(Trial(RECORDS / "otherclient"))


def with_operations(record: Explained, *spans: tuple[float, float, int]) -> Explained:
    """The record with operations between some seconds after its start, sent by a line of that number."""
    start = record.timed[0].start
    operations = [
        Operation(number, "", ("work.py", line, f"line {line}"), start + begin, start + end, 10)
        for number, (begin, end, line) in enumerate(spans, start=1)
    ]
    return replace(record, operations=operations)


def test_operations_of_one_line_are_one_row(record: Explained) -> None:
    loop = [(0.2 * number, 0.2 * number + 0.1, 7) for number in range(9)]
    rows = list(operation_table.largest_rows(with_operations(record, (1.8, 1.9, 3), *loop)))
    assert [row[:5] for row in rows] == [
        ("9 of 2 to 10", "work.py:7 line 7", "90", "0.00", "0.90, each 0.10 to 0.10"),
        ("1", "work.py:3 line 3", "10", "1.80", "0.10"),
    ]
    assert re.search(r"\(number \d+\)$", rows[0][6])  # the path is that of one of them


def test_smallest_operations_share_the_last_row(record: Explained) -> None:
    spans = [(0.1 * line, 0.1 * line + 0.01 * line, line) for line in range(1, 13)]
    rows = list(operation_table.largest_rows(with_operations(record, *spans)))
    assert len(rows) == operation_table.MOST_ROWS
    assert [row[0] for row in rows[:2]] == ["12", "11"]
    assert rows[-1] == ("3 others", "", "30", "0.10", "0.06", "", "")


def test_all_rows_are_in_the_order_of_the_program(record: Explained) -> None:
    rows = operation_table.rows(with_operations(record, (0.0, 0.1, 7), (0.5, 1.5, 8), (1.6, 1.7, 7)))
    assert [row[0] for row in rows] == ["1", "2", "3"]


def test_operations_whose_sender_is_unknown_keep_rows_of_their_own(record: Explained) -> None:
    unknown = [
        replace(operation, code=("", 0, ""))
        for operation in with_operations(record, (0.0, 0.1, 1), (0.5, 0.7, 2)).operations
    ]
    rows = list(operation_table.largest_rows(replace(record, operations=unknown)))
    assert [row[0] for row in rows] == ["2", "1"]
