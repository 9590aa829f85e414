"""The page of the 2019 study: which of its findings hold in these runs, and its figures beside ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dasklab.report.templates.rendering import render
from dasklab.report.words.sentences import FindingVerdict
from dasklab.terminal import counted

FILE = "study_2019.html"


@dataclass(frozen=True)
class StudyPage:
    """The link to the page, and its result in a sentence."""

    file: str
    sentence: str


def write(content: Mapping[str, Any], output: Path) -> StudyPage | None:
    """Write the page from the report's content; without anything to compare there is none."""
    measured = [verdict for verdict in content["verdicts"] if verdict.state != "not measured"]
    if not measured and not any(section.study_pictures for section in content["sections"]):
        return None
    (output / FILE).write_text(render(FILE, content), encoding="utf-8")
    return StudyPage(FILE, summary(measured))


def summary(measured: Sequence[FindingVerdict]) -> str:
    """Return how many findings hold: ``Of 3 findings measured here, 2 hold and 1 is not shown.``"""
    if not measured:
        return "These runs measured none of its findings."
    numbers = Counter(verdict.state for verdict in measured)
    verbs = {"holds": ("holds", "hold"), "does not hold": ("does not hold", "do not hold")}
    verbs["not shown"] = ("is not shown", "are not shown")
    parts = [
        f"{numbers[state]} {words[numbers[state] > 1]}" for state, words in verbs.items() if numbers[state]
    ]
    return f"Of {counted(len(measured), 'finding')} measured here, {' and '.join(parts)}."
