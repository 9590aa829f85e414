"""Numbers as people read them."""

from __future__ import annotations

import pytest
from dasklab.model.forms.number_format import format_fixed


@pytest.mark.parametrize(
    ("value", "digits", "sign", "text"),
    [
        (0.524, 2, "", "0.52"),
        (0.524, 2, "+", "+0.52"),
        (-0.524, 2, "", "-0.52"),
        (-0.001, 2, "", "0.00"),
        (0.0001, 3, "+", "0.000"),
        (-0.4, 0, "+", "0"),
    ],
)
def test_zero_has_no_sign(value: float, digits: int, sign: str, text: str) -> None:
    assert format_fixed(value, digits, sign) == text
