"""Fixtures of the wire tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from daskwire import Capture, open_capture

from tests.unit.daskwire.build import DATA, Packet, pcap


@cache
def golden_capture(name: str) -> Capture:
    """A golden capture, decoded once."""
    keys = DATA / f"{name}.keys"
    return open_capture(DATA / f"{name}.pcap.gz", key_log=keys.read_text() if keys.exists() else None)


def golden_truth(name: str) -> dict[str, Any]:
    """What its nodes counted."""
    nodes: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())["nodes"]
    return nodes


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Capture]:
    """Decode packets or the bytes of a file."""

    def decode(what: list[Packet] | bytes, **options: Any) -> Capture:
        path = tmp_path / "capture.pcap"
        path.write_bytes(what if isinstance(what, bytes) else pcap(what))
        return open_capture(path, **options)

    return decode
