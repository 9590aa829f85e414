"""What the panels of a timeline share: names of rows, texts, and plain rectangles."""

from __future__ import annotations

import re

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.causes import LOGIC, NOTHING, PARTS, WIRE
from dasklab.breakdown.model.repeat import Repeat
from dasklab.report.drawings.timeline.rectangles import Rectangles, Row

DATA, SCHEDULER, IDLE = (PARTS.index(cause.part) for cause in (WIRE, LOGIC, NOTHING))
"""Colours of rectangles: positions in ``PARTS``."""
MAX_ROW_NAME_LETTERS = 24


def short_name(name: str) -> str:
    """Return a host's name for narrow screens: `w1` for `worker-1`; else the end of the name."""
    match = re.fullmatch(r"([a-z])[a-z]*(?:-(\d[\d-]*))?", name)
    return f"{match[1]}{match[2] or ''}" if match else name[-8:]


def direction(source: str, target: str) -> Row:
    """Return the row of what goes from one host to another; a source without a name is any."""
    short = "\u2192".join(map(short_name, (source, target)))
    label = f"{source} \u2192 {target}".strip()
    return Row(label if len(label) <= MAX_ROW_NAME_LETTERS else short, short)


class Texts:
    """Texts, each of them once, with their positions."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        if text not in self._codes:
            self._codes[text] = len(self.texts)
            self.texts.append(text)
        return self._codes[text]


def rectangles(
    repeat: Repeat, row: Codes, start: Floats, stop: Floats, what: Codes, ends: tuple[Floats, Floats]
) -> Rectangles:
    """Return rectangles with a detail each, cut at the repeat's ends, in the colour of the scheduler's part.

    Args:
        ends: the low and the high ends within their rows.
    """
    number = len(start)
    return Rectangles(
        left=np.clip(start, repeat.start, repeat.stop) - repeat.start,
        right=np.clip(stop, repeat.start, repeat.stop) - repeat.start,
        row=row,
        low=ends[0],
        high=ends[1],
        colour=np.full(number, SCHEDULER),
        what=what,
        detail=np.arange(number),
        count=np.ones(number, np.int64),
    )
