"""A simulation's process gets its whole scenario, however large it is and however late it begins to read."""

from __future__ import annotations

from pathlib import Path

from dasklab.predict.engine import one_process

SLOW_READER = f"""
import sys, time
time.sleep({3 * one_process.LOOK_S})
print(len(sys.stdin.read()))
"""


def test_large_scenario_reaches_a_process_that_starts_slowly(tmp_path: Path) -> None:
    simulation = tmp_path / "dasklab" / "sim"
    for folder in (simulation, tmp_path / "dasklab" / "workloads"):
        folder.mkdir(parents=True)
    (tmp_path / "dasklab" / "__init__.py").touch()
    (simulation / "__main__.py").write_text(SLOW_READER)
    looks = iter(range(100))  # else a process that waits for its scenario would wait for ever
    size = 1_000_000  # more than a pipe holds
    assert one_process.run("x" * size, 0, str(tmp_path), lambda: next(looks, None) is None) == (
        0,
        f"{size}\n",
        "",
    )
