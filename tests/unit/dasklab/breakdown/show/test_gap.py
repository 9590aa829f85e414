"""The sentence about what a record lacks: nothing, its end, or nobody knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dasklab.breakdown.show.explain import gap
from dasklab.records.document import Record

WHOLE = Record(form=2, client="c", start=100.0, stop=109.0, lost={}, failures={}, complete=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"complete": None}, "It is unknown whether this record is complete"),
        ({"complete": False}, "The recording was cut off. What follows is only the part that was kept."),
        ({"complete": False, "complete_until": 104.25}, "The recording was cut off at 1970-01-"),
        ({"complete": False, "complete_until": 104.25}, ", after 4.2 s. What follows is only that part."),
        ({"complete": False, "beyond_limit": {"tasks": 3}}, "The recording reached its size limit. "),
    ],
)
def test_gap_is_named(changes: dict[str, Any], words: str) -> None:
    assert words in gap(replace(WHOLE, **changes))


def test_whole_record_has_no_gap() -> None:
    assert gap(WHOLE) == ""
