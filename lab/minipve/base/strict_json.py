"""Parse untrusted JSON: limited depth, no NaN or infinity, and ValueError for every fault.

Python's own parser accepts 900 nested lists, and recursive code then fails on the result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

MAX_DEPTH = 64


class NestingError(ValueError):
    """Lists and objects are nested deeper than ``MAX_DEPTH``."""


def loads(text: str | bytes, numbers_as_text: bool = False) -> Any:
    """Parse a JSON text.

    Raises:
        json.JSONDecodeError: it is not JSON.
        NestingError: it is nested too deep.
        ValueError: it contains NaN, infinity or half of a surrogate pair.
    """
    integer, real = (str, str) if numbers_as_text else (int, _finite)
    try:
        value = json.loads(text, parse_int=integer, parse_float=real, parse_constant=_refuse_constant)
    except RecursionError:
        raise NestingError from None
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError for half of a pair
            return value
    raise NestingError


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
