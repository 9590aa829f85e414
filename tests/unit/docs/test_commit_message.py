"""A commit message has a short subject and a body."""

from __future__ import annotations

import pytest

from tests.commit_message import fault


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Name the two files\n\nNobody could tell them apart.\n", None),
        ("Name the two files\n", "no body"),
        ("Name the two files\n# Please enter the message\n", "no body"),
        ("Name the two files\nNobody could tell them apart.\n", "second line"),
        ("N" * 61 + "\n\nNobody could tell them apart.\n", "61 characters"),
    ],
)
def test_what_is_wrong_with_a_message(message: str, expected: str | None) -> None:
    found = fault(message)
    assert found is expected is None or expected in str(found)
