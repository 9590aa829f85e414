"""A container's own CPUs and memory, from its control group, version 1 or 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from dasklab_guest import cgroup

GIB = 2**30
V2 = {
    "cpu.max": "20000 20000\n",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1000000\n",
    "memory.current": f"{GIB}\n",
    "memory.max": f"{2 * GIB}\n",
    "memory.stat": f"anon 1\ninactive_file {GIB // 2}\n",
}
V1 = {
    "cpu,cpuacct/cpu.cfs_quota_us": "20000\n",
    "cpu,cpuacct/cpu.cfs_period_us": "20000\n",
    "cpu,cpuacct/cpuacct.usage": "1500000000\n",
    "memory/memory.usage_in_bytes": f"{GIB}\n",
    "memory/memory.limit_in_bytes": f"{2 * GIB}\n",
    "memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 2}\n",
}
UNLIMITED = {**V2, "cpu.max": "max 100000\n", "memory.max": "max\n"}
HIDDEN = {"unified/cpu.stat": V2["cpu.stat"]}  # of version 1, where only memory's group is mounted inside


@pytest.mark.parametrize(
    ("files", "cores", "cpus", "cpu_s", "memory"),
    [
        (V2, 0, 1, 1.5, 0.25),
        (V1, 0, 1, 1.5, 0.25),
        (UNLIMITED, 1, 4, 1.5, 0.0625),
        (HIDDEN, 1, 1, 1.5, None),
        (HIDDEN, 0, 4, 1.5, None),
        ({}, 8, 4, None, None),
    ],
    ids=["v2", "v1", "unlimited", "hidden", "hidden, cores unknown", "none"],
)
def test_own_limits_and_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    cores: int,
    cpus: float,
    cpu_s: float | None,
    memory: float | None,
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert (cgroup.cpus(cores), cgroup.cpu_s(), cgroup.memory_used(8 * GIB)) == (cpus, cpu_s, memory)
