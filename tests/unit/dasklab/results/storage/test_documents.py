"""Documents are read whole and typed, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.model.files import Campaign, Measured
from dasklab.results import load
from dasklab.results.storage import documents

from tests.unit.dasklab.stored_run import previous_run


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / Measured.FILE).write_text('{"schema": 1}')
    with pytest.raises(LabError, match="format 1; this version of dasklab reads 4"):
        documents.read(Measured, tmp_path)


def test_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / Measured.FILE).write_text('{"schema": 4, "rtts": []}')
    with pytest.raises(LabError, match=r"measured\.json: rtts: unknown key; allowed: .*rtt"):
        documents.read(Measured, tmp_path)


def test_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no results here"):
        load(tmp_path)


def test_trials_outside_of_a_run_are_refused(tmp_path: Path) -> None:
    file = previous_run(tmp_path) / Campaign.FILE
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"order": [*content["order"], "../elsewhere"]}))
    with pytest.raises(LabError, match=r"'\.\./elsewhere' leads out of its folder"):
        load(file.parent)
