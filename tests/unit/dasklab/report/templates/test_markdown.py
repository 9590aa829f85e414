"""Texts of a run in report.md: neither HTML nor markup nor terminal escapes, whoever wrote the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from dasklab import report
from dasklab.report.templates import markdown
from dasklab.results.run import Run
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import FakeLab

HOSTILE = "<script>alert(1)</script> \x1b]0;title\x07 \u202e ![x](http://tracker) `code` | *bold* \n# heading"
ESCAPED = (
    r"&lt;script&gt;alert(1)&lt;/script&gt; \\u001b\]0;title\\u0007 \\u202e"
    r" !\[x\](http://tracker) \`code\` \| \*bold\* # heading"
)


@pytest.mark.usefixtures("undrawn")
def test_hostile_texts_of_a_run_are_escaped(
    measured: Callable[..., driver.ActiveRun], tmp_path: Path
) -> None:
    run = measured(FakeLab()).stored.folder
    file = run / "experiment.json"
    content = json.loads(file.read_text())
    content["experiment"] |= {"title": HOSTILE, "question": HOSTILE}
    file.write_text(json.dumps(content))
    for timings in run.glob("*/timings.json"):
        answer = json.loads(timings.read_text())
        answer["versions"]["dask"] = HOSTILE
        timings.write_text(json.dumps(answer))
    text = report.write([Run(run)], tmp_path / "report").with_name("report.md").read_text()
    assert f"## {ESCAPED}" in text and f"*{ESCAPED}*" in text
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text and "![x]" not in text


def test_plain_texts_stay_readable() -> None:
    assert (
        markdown.escape("worker_1: 2.5 s (+3 %), dask 2026.8.0-rc1")
        == "worker_1: 2.5 s (+3 %), dask 2026.8.0-rc1"
    )
    assert markdown.codes(["1-01", "a`b"]) == "`1-01`, `a'b`"
