"""Whatever ends a farm early ends its simulations: no process is left that nobody waits for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dasklab.model.files import Outcome
from dasklab.predict import farm

from tests.unit.dasklab.sim.samples import scenario

# In the place of Python: the first seed's is done at once, the other's is not for long.
PYTHON = """#!/bin/sh
echo $$ >>{pids}
test $PYTHONHASHSEED = 1 || exec sleep 60
echo '{outcome}'
"""


def test_a_farm_that_is_stopped_ends_what_it_simulates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids, python = tmp_path / "pids", tmp_path / "python"
    done = Outcome(seed=1, runs=(), digest="", messages=0, ops={}, unknown=(), cpu_s=0.0)
    python.write_text(PYTHON.format(pids=pids, outcome=done.model_dump_json()))
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def stop(outcome: Outcome) -> None:
        while len(started(pids)) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        farm.simulate_all([scenario(seed=seed) for seed in (1, 2, 3, 4)], stop)
    assert time.monotonic() - began < 30
    assert len(started(pids)) < 4, "what had not begun was begun"
    assert not [pid for pid in started(pids) if Path(f"/proc/{pid}").exists()]


def started(pids: Path) -> list[str]:
    return pids.read_text().split() if pids.exists() else []
