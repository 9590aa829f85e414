"""The report of a run opens and writes nothing that the run names outside of itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dasklab import report
from dasklab.errors import LabError
from dasklab.results.run import Run
from dasklab.results.storage.damage import DOCUMENTS

from tests.unit.dasklab.stored_run import TRIAL, previous_run

_opened: set[Path] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename"):
        _opened.update(Path(os.path.realpath(path)) for path in arguments[:2] if isinstance(path, str | Path))


sys.addaudithook(_watch)  # cannot be removed


def texts(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the place of each text in JSON: a mapping or a list, and the key there."""
    for key, value in [*(content.items() if isinstance(content, dict) else enumerate(content))]:
        if isinstance(value, str) and key != "net":  # the report parses it
            yield content, key
        elif isinstance(value, dict | list):
            yield from texts(value)


@pytest.fixture
def forge(tmp_path: Path) -> Callable[[str], tuple[Path, int]]:
    """Make a run with a text in all places that may hold it: where the run stays whole."""

    def forged(text: str) -> tuple[Path, int]:
        folder, places = previous_run(tmp_path / "results"), 0
        names = [f"{TRIAL}/{kind.FILE}" for kind in DOCUMENTS]
        for file in [folder / "experiment.json", *(folder / name for name in names)]:
            if not file.exists():
                continue
            content = json.loads(file.read_text())
            for place, key in texts(content):
                place[key], before = text, place[key]
                file.write_text(json.dumps(content))
                try:
                    whole = len(Run(folder).trials) == 1 and Run(folder).experiment is not None
                except LabError:
                    whole = False
                places += whole
                if not whole:
                    place[key] = before
            file.write_text(json.dumps(content))
        return folder, places

    return forged


@pytest.mark.usefixtures("undrawn")
def test_report_opens_nothing_that_a_run_names(
    forge: Callable[[str], tuple[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("{}")
    folder, places = forge("../" * 20 + str(outside / "secret")[1:])
    assert places > 20
    opened: set[Path] = set()
    monkeypatch.setattr(sys.modules[__name__], "_opened", opened)
    report.write([Run(folder)], tmp_path / "report")
    assert any(folder in path.parents for path in opened)
    assert not [path for path in opened if outside in (path, *path.parents)]
