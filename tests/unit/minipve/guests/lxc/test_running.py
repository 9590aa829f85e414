"""Which processes are monitors of our containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.paths import Paths
from minipve.guests.lxc import running


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def test_monitor_is_identified_by_its_command_line(paths: Paths) -> None:
    folder = running.lxc_folder(paths)
    assert running._vmid_of([f"[lxc monitor] {folder} 100"], paths) == 100
    assert running._vmid_of(["/usr/bin/lxc-start", "-d", "-C", "-P", str(folder), "-n", "101"], paths) == 101
    for words in (
        [],
        ["[lxc monitor] /var/lib/lxc 100"],
        ["sleep", "infinity"],
        [f"[lxc monitor] {folder} x"],
    ):
        assert running._vmid_of(words, paths) is None
