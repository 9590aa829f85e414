"""How many operations a message counts as."""

from __future__ import annotations

import pytest
from dasklab.sim.costs import MESSAGE, NOTICE, operations


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"op": "get_data", "keys": ["a"]}, MESSAGE + 1),
        ("OK", MESSAGE + 1),
        (None, MESSAGE + 1),
        ([{"op": "task-finished"}, {"op": "add-keys"}, {"op": "task-finished"}], MESSAGE + 2 + NOTICE),
        (({"op": "release-worker-data"},) * 1000, MESSAGE + 1000 * NOTICE),
        ([], MESSAGE),
    ],
)
def test_message_counts_itself_and_each_of_its_entries(message: object, expected: float) -> None:
    assert operations(message) == pytest.approx(expected)
