"""What messages count as: notices of keys come by the thousand and cost next to nothing."""

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
def test_a_message_and_each_of_its_operations_count(message: object, expected: float) -> None:
    assert operations(message) == pytest.approx(expected)
