"""The answers that README and documentation show are what dasklab prints of a stored record."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "tests/data/records/slow_link_gather"
LEFT_OUT = "[...]"


def readme() -> str:
    return re.findall(r"```\n(run: It took.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def first_page() -> str:
    lines = re.findall(r"^>(.*)", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    return "\n".join(lines)


@pytest.mark.parametrize("shown", [readme, first_page])
def test_answer_is_what_is_printed(shown: Callable[[], str], tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["explain", str(shutil.copytree(RECORD, tmp_path / "run"))]).output
    pieces = [re.escape(" ".join(piece.split())) for piece in shown().split(LEFT_OUT)]
    assert re.search(".*".join(pieces), " ".join(printed.split()))
