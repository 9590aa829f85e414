"""Commands that draw work without matplotlib, too."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from dasklab.console import picture
from matplotlib.figure import Figure


def test_picture_is_written_where_it_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture.save_picture("Threads", Figure, tmp_path / "threads")
    assert capsys.readouterr().out == f"\nThreads: {tmp_path}/threads.svg\n"
    assert {path.name for path in tmp_path.iterdir()} == {"threads.svg", "threads.png"}


def test_command_without_matplotlib_prints_how_to_get_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw() -> NoReturn:
        raise AssertionError("this needs matplotlib")

    monkeypatch.setattr(picture, "find_spec", lambda _: None)
    picture.save_picture("Threads", draw, tmp_path / "threads")
    assert capsys.readouterr().out == (
        "\nThreads: not drawn. To get the picture: pip install 'dasklab[report]'\n"
    )
    assert list(tmp_path.iterdir()) == []
