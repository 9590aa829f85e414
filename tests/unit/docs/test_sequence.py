"""A sequence diagram of a page becomes a picture; what cannot be drawn is refused, not left out."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("sphinx", reason="Sphinx is missing: pip install -e '.[docs]'")
DIAGRAM = """sequenceDiagram
    participant A as scheduler
    participant B as worker
    Note over A: chooses<br/>a worker & more than forty-six letters of text in one line
    A->>B: sends
"""


@pytest.fixture(scope="module")
def sequence() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[3] / "docs" / "sequence.py"))


def test_picture_has_every_line_and_one_arrow(sequence: dict[str, Any]) -> None:
    picture = ElementTree.fromstring(sequence["svg"](DIAGRAM))
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert texts == [
        *("scheduler", "worker", "chooses"),
        *("a worker & more than forty-six letters of text", "in one line", "sends"),
    ]
    assert len([element for element in picture.iter() if element.tag.endswith("path")]) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph LR", "only a sequenceDiagram"),
        (f"{DIAGRAM}    loop forever", "cannot be drawn: 'loop forever'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(sequence: dict[str, Any], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sequence["svg"](text)
