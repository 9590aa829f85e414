"""Who simulates in processes and is interrupted kills them: no process is left that nobody waits for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dasklab.model.files import Outcome
from dasklab.predict.engine import processes

from tests.unit.dasklab.sim.samples import scenario

# Takes the place of Python: the first seed's simulation ends at once, the others sleep
PYTHON = """#!/bin/sh
echo $$ >>{pids}
test $PYTHONHASHSEED = 1 || exec sleep 60
echo '{outcome}'
"""


def test_interrupted_farm_kills_running_simulations_and_starts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids, python = tmp_path / "pids", tmp_path / "python"
    outcome = Outcome(seed=1, repeats=(), digest="", messages=0, ops={}, unknown=(), cpu_s=0.0)
    python.write_text(PYTHON.format(pids=pids, outcome=outcome.model_dump_json()))
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def interrupt(outcome: Outcome) -> None:
        while len(started(pids)) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        processes.simulate_all([scenario(seed=seed) for seed in (1, 2, 3, 4)], interrupt)
    assert time.monotonic() - start < 30
    assert len(started(pids)) < 4
    assert not [pid for pid in started(pids) if Path(f"/proc/{pid}").exists()]


def started(pids: Path) -> list[str]:
    return pids.read_text().split() if pids.exists() else []
