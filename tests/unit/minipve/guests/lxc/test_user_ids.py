"""The range of user IDs for containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.paths import Paths
from minipve.guests.lxc import limits


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def test_chosen_range_is_not_allocated() -> None:
    other = [("alice", 100_000, 65_536), ("bob", 165_536, 65_536)]
    assert limits.choose([], []) == 100_000
    assert limits.choose(other, []) == 231_072
    assert limits.choose(other, [("carol", 231_072, 65_536)]) == 296_608
    root = ("root", 500_000, 65_536)
    assert limits.choose([*other, root], [root]) == 500_000
    assert limits.choose([*other, root], other) != 500_000, "both files must have root's range"


def test_range_of_an_instance_is_stored(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "choose", lambda *_: 700_000)
    assert limits.first(paths) == 700_000
    monkeypatch.setattr(limits, "choose", lambda *_: 800_000)
    assert limits.first(paths) == 700_000
