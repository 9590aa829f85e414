"""Where an instance keeps its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.paths import Paths


def test_environment_sets_the_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MINIPVE_STATE", "MINIPVE_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert Paths.of("lab1").state == Path("/home/me/.local/state/minipve/lab1")
    assert Paths.of("lab1").cache == Path("/home/me/.cache/minipve")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("MINIPVE_STATE", str(tmp_path))
    assert Paths.of("lab1") == Paths(tmp_path, Path("/x/minipve"))
