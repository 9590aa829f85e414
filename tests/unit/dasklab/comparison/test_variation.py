"""How several records of one program vary."""

from __future__ import annotations

import pytest
from dasklab.breakdown.model.causes import COMPUTING, LINK, PLACEMENT, USER_CODE, Bottleneck
from dasklab.comparison.causes import PathSeconds
from dasklab.comparison.variation import Variation, record_rows, rows, sentence


def records(*paths: dict[Bottleneck, float]) -> Variation:
    names = tuple(f"record-{number}" for number in range(len(paths)))
    return Variation(names, tuple(PathSeconds(sum(path.values()), path) for path in paths))


def test_cause_that_makes_records_longer_is_named_with_its_range() -> None:
    varied = records(
        {COMPUTING: 2.0, LINK: 0.5}, {COMPUTING: 2.1, LINK: 1.0, PLACEMENT: 0.5}, {COMPUTING: 1.9, LINK: 3.0}
    )
    assert sentence(varied) == (
        "3 records took 2.50 to 4.90 s (median 3.60 s). "
        "What varies with the length: the wire (0.50 to 3.00 s, 100 % of the variation)."
    )
    assert list(rows(varied)) == [
        ("the wire", "0.50", "1.50", "3.00", "100 %"),
        ("computing", "1.90", "2.00", "2.10", "none"),
    ]
    assert list(record_rows(varied)) == [
        ("record-0", "2.50", "2.00 s computing"),
        ("record-1", "3.60", "2.10 s computing"),
        ("record-2", "4.90", "3.00 s the wire"),
    ]


def test_parts_of_the_variation_add_up_to_all_of_it() -> None:
    varied = records(
        {COMPUTING: 1.0, USER_CODE: 1.0}, {COMPUTING: 3.0, USER_CODE: 0.5}, {COMPUTING: 4.0, USER_CODE: 4.0}
    )
    assert sum(cause.part for cause in varied.causes) == pytest.approx(1)


def test_equally_long_records_have_no_cause_that_varies() -> None:
    varied = records({COMPUTING: 2.0, LINK: 0.5}, {COMPUTING: 1.5, LINK: 1.05}, {COMPUTING: 2.0, LINK: 0.51})
    assert sentence(varied) == (
        "3 records took 2.50 to 2.55 s (median 2.51 s): they are equally long, so no cause varies with the"
        " length."
    )
    assert [row[-1] for row in rows(varied)] == ["", ""]
