"""The answer that the README shows is what dasklab prints of a stored record."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from click.testing import CliRunner
from dasklab.cli import main

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "tests/data/records/slow_link_gather"
LEFT_OUT = "[...]"


def test_answer_is_what_is_printed(tmp_path: Path) -> None:
    block = re.findall(r"```\n(run: It took.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    printed = CliRunner().invoke(main, ["explain", str(shutil.copytree(RECORD, tmp_path / "run"))]).output
    pieces = [re.escape(" ".join(piece.split())) for piece in block.split(LEFT_OUT)]
    assert re.search(".*".join(pieces), " ".join(printed.split()))
