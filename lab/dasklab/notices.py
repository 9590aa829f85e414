"""Warnings about what was left out and why, for the user to read while the rest goes on.

They are records of the logger ``dasklab``: commands print them on stderr (`dasklab.terminal`), Python
programs may handle or silence them as they like.
"""

from __future__ import annotations

import logging
from functools import cache

LOGGER = logging.getLogger("dasklab")


@cache
def warn(text: str) -> None:
    """Log a warning, once in the life of the process however many readers meet its cause."""
    LOGGER.warning(text)
