"""The Python API: its page describes all of it, and the example on the page runs."""

from __future__ import annotations

import re
from pathlib import Path

import daskwire
import pytest
from daskwire import Capture
from daskwire.decoder.dask.messages import Messages
from daskwire.decoder.net.segments import Segments

from docs.generate import ROOT
from docs.parts import wire
from tests.unit.daskwire.build import DATA
from tests.unit.daskwire.conftest import golden_capture

PAGE = ROOT / "docs" / "reference" / "wire-api.md"


def test_page_describes_every_name() -> None:
    titles = re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert titles == [*daskwire.__all__, "Messages", "Segments"]
    assert 8 <= len(daskwire.__all__) <= 12


def test_example_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    capture = (DATA / "g3-2026.8.0.pcap.gz").read_bytes()
    (tmp_path / "capture.pcap").write_bytes(capture)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(example, names)
    assert "'p50'" in capsys.readouterr().out
    assert len(names["tasks"]) == len(names["capture"].table("tasks")["key"]) > 0


@pytest.mark.parametrize(("arrays", "name"), [(Messages, "messages"), (Segments, "segments")])
def test_arrays_have_the_documented_types_and_one_value_per_row(arrays: type, name: str) -> None:
    part = PAGE.read_text().partition(f"## {arrays.__name__}\n")[2]
    rows = re.findall(r"^\| `(\w+)` \| ([iu]\d) \| (\(per op\))?", part.partition("\n## ")[0], re.MULTILINE)
    values = getattr(golden_capture("g3-2026.8.0"), name)
    assert len(rows) > 10
    for attribute, kind, per_op in rows:
        array = getattr(values, attribute)
        assert array.dtype.str[1:] == kind, attribute
        assert array.shape == ((len(values.op_name),) if per_op else (len(values),)), attribute


def test_capture_has_the_documented_attributes() -> None:
    capture: Capture = golden_capture("g3-2026.8.0")
    for name in (*wire.ATTRIBUTES, *wire.METHODS):
        assert hasattr(capture, name)
