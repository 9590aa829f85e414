"""PVE's lists in one text (``*-list`` formats)."""

from __future__ import annotations

import re


def split_list(text: str) -> list[str]:
    """Split a list at commas, semicolons and white space."""
    return [item for item in re.split(r"[\s,;\0]+", text) if item]
