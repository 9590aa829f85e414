"""Limits of a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base import host
from minipve.base.paths import Paths
from minipve.guests.lxc import limits


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def test_limits_in_both_cgroup_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"memory": "256", "swap": "64", "cpulimit": "1.5"}
    monkeypatch.setattr(host, "cpus", lambda: 4)
    first, second = limits.limits(options, 1), limits.limits(options, 2)
    assert first["memory.limit_in_bytes"] == "268435456"
    assert first["memory.memsw.limit_in_bytes"] == str(320 * 2**20)
    assert (first["cpu.cfs_quota_us"], first["cpu.cfs_period_us"]) == ("30000", "20000")
    assert first["cpu.shares"] == "1024"
    assert (second["memory.max"], second["memory.swap.max"]) == ("268435456", str(64 * 2**20))
    assert (second["cpu.max"], second["cpu.weight"]) == ("30000 20000", "100")
    assert first["pids.max"] == second["pids.max"] == "4096"


@pytest.mark.parametrize(
    ("options", "quota"),
    [
        ({}, "-1"),
        ({"cores": "1"}, "20000"),
        ({"cores": "3", "cpulimit": "0.5"}, "10000"),
        ({"cores": "1", "cpulimit": "2"}, "20000"),
        ({"cores": "4"}, "-1"),  # all processors of the host
        ({"cores": "8"}, "-1"),
        ({"cpulimit": "0"}, "-1"),
    ],
)
def test_cores_limit_the_processor_time(
    options: dict[str, str], quota: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "cpus", lambda: 4)
    assert limits.limits(options, 1)["cpu.cfs_quota_us"] == quota
    assert limits.limits(options, 2)["cpu.max"] == f"{'max' if quota == '-1' else quota} 20000"


def test_instances_have_different_folders(paths: Paths, tmp_path: Path) -> None:
    assert limits.folder(paths) != limits.folder(Paths(tmp_path / "other", paths.cache))
