"""Draw the sequence diagrams of the pages as SVG, because Mermaid's own script would have to be downloaded.

Only what the pages use is understood: participants, notes over one of them, and messages; ``<br/>`` is a new
line. Colours are the page's own, so that a diagram follows its light and dark theme.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from docutils import nodes
from sphinx.application import Sphinx

LANE, LEFT, WIDTH, TOP = 360, 180, 720, 44
LINE, GAP = 18, 14  # height of a line of text, space between two steps
PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
NOTE = re.compile(r"Note over (\w+): (.+)")
MESSAGE = re.compile(r"(\w+)->>(\w+): (.+)")
BOX = 'fill="var(--color-background-secondary)" stroke="currentColor" stroke-opacity="0.4"'


@dataclass(frozen=True)
class Step:
    """A note (``target`` is None) or a message between two participants."""

    source: str
    target: str | None
    lines: list[str]


def parse(text: str) -> tuple[dict[str, str], list[Step]]:
    """Return the participants' titles by name, and the steps.

    Raises:
        ValueError: a line is none of those that are understood.
    """
    first, *lines = [line.strip() for line in text.strip().splitlines()]
    if first != "sequenceDiagram":
        raise ValueError(f"only a sequenceDiagram can be drawn, not {first!r}")
    titles, steps = {}, []
    for line in lines:
        if match := PARTICIPANT.fullmatch(line):
            titles[match[1]] = match[2]
        elif match := NOTE.fullmatch(line):
            steps.append(Step(match[1], None, _wrap(match[2], 46)))
        elif match := MESSAGE.fullmatch(line):
            steps.append(Step(match[1], match[2], _wrap(match[3], 80)))
        else:
            raise ValueError(f"this line of a diagram cannot be drawn: {line!r}")
    return titles, steps


def _wrap(text: str, columns: int) -> list[str]:
    return [line for part in text.split("<br/>") for line in textwrap.wrap(part, columns)]


def svg(text: str) -> str:
    """Return a diagram as SVG."""
    titles, steps = parse(text)
    lanes = {name: LEFT + LANE * place for place, name in enumerate(titles)}
    parts, y = [], TOP + GAP
    for step in steps:
        height = LINE * len(step.lines) + 8
        parts += _message(step, lanes, y, height) if step.target else _note(step, lanes, y, height)
        y += height + GAP
    head = [
        line
        for name, x in lanes.items()
        for line in (
            f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{y}" stroke="currentColor" stroke-dasharray="4 4"/>',
            f'<rect x="{x - 80}" y="8" width="160" height="{TOP - 8}" rx="4" {BOX}/>',
            f'<text x="{x}" y="32" font-weight="600">{html.escape(titles[name])}</text>',
        )
    ]
    spoken = html.escape("; ".join(" ".join(step.lines) for step in steps))
    return "\n".join(
        [
            f'<div class="diagram"><svg role="img" aria-label="{spoken}" viewBox="0 0 {WIDTH} {y + 8}"'
            ' text-anchor="middle" font-size="13" fill="currentColor" xmlns="http://www.w3.org/2000/svg">',
            *head,
            *parts,
            "</svg></div>",
        ]
    )


def _note(step: Step, lanes: dict[str, int], y: int, height: int) -> list[str]:
    x = lanes[step.source]
    return [
        f'<rect x="{x - 172}" y="{y}" width="344" height="{height}" rx="3" {BOX}/>',
        *_texts(step, x, y),
    ]


def _message(step: Step, lanes: dict[str, int], y: int, height: int) -> list[str]:
    """Draw an arrow below its text. The text covers the dashed lines of the lanes."""
    start, end = lanes[step.source], lanes[step.target or ""]
    back, foot, middle = (-9 if end > start else 9), y + height, (start + end) // 2
    return [
        f'<rect x="{middle - 290}" y="{y}" width="580" height="{height - 4}"'
        ' fill="var(--color-background-primary)"/>',
        *_texts(step, middle, y),
        f'<line x1="{start}" x2="{end}" y1="{foot}" y2="{foot}" stroke="currentColor" stroke-width="1.5"/>',
        f'<path d="M{end} {foot} l{back} -5 v10 z"/>',
    ]


def _texts(step: Step, x: int, y: int) -> Iterator[str]:
    for number, line in enumerate(step.lines, 1):
        yield f'<text x="{x}" y="{y + LINE * number - 1}">{html.escape(line)}</text>'


def draw(app: Sphinx, document: nodes.document) -> None:
    """Replace each diagram of a page by its picture."""
    for block in list(document.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            block.replace_self(nodes.raw("", svg(block.astext()), format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", draw)
    return {"parallel_read_safe": True}
