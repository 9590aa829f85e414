"""Fixtures of the daskwire tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from daskwire import TABLES, Capture, open_capture
from daskwire.analysis.tables import completeness

from tests.unit.daskwire.build import DATA, Packet, pcap


@cache
def golden_capture(name: str) -> Capture:
    """Decode a golden capture, once per session."""
    keys = DATA / f"{name}.keys"
    return open_capture(DATA / f"{name}.pcap.gz", key_log=keys.read_text() if keys.exists() else None)


def golden_truth(name: str) -> dict[str, Any]:
    """Return what its nodes counted while they ran."""
    nodes: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())["nodes"]
    return nodes


def validate(capture: Capture) -> None:
    """Check what always holds of a decoded capture and of its tables."""
    capture.segments.validate(2 * len(capture.connections))
    capture.messages.validate()
    completeness.validate({name: capture.table(name) for name in TABLES})


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Capture]:
    """Return a function that decodes packets or the bytes of a file."""

    def decode(content: list[Packet] | bytes, **options: Any) -> Capture:
        path = tmp_path / "capture.pcap"
        path.write_bytes(content if isinstance(content, bytes) else pcap(content))
        capture = open_capture(path, **options)
        validate(capture)
        return capture

    return decode
