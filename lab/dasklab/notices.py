"""Warnings about skipped or damaged input, for readers that carry on without it.

They are records of the logger ``dasklab``. Commands print them on stderr (`dasklab.terminal`); a Python
program may handle or silence them.
"""

from __future__ import annotations

import logging
from functools import cache

from dasklab.errors import plain

LOGGER = logging.getLogger("dasklab")


@cache
def warn(text: str) -> None:
    """Log a warning once per process, however many readers meet its cause."""
    LOGGER.warning("%s", plain(text))
