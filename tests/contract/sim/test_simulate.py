"""The real Dask in virtual time, in processes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.model.files import Outcome
from dasklab.paths import SHARE as ROOT
from dasklab.predict.engine import processes
from dasklab.sim import simulate
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.sim.samples import MACHINES, scenario


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """All simulations of this module, in parallel."""
    single_worker = scenario(
        workload={"name": "parallel_tasks", "params": {"tasks": 5}},
        workers=1,
        tasks={"work": [(1.5, 0.5, 28)]},
        driver_s=1.0,
        handoff_s=0.2,
    )
    scenarios = {
        "first": scenario(seed=3),
        "same seed": scenario(seed=3),
        "other seed": scenario(seed=4),
        "slow network": scenario(seed=3, rates_mbit=dict.fromkeys(MACHINES, 10)),
        "single worker": single_worker,
        "without shards": shuffle(0),
        "with shards": shuffle(150_000),
    }
    return dict(zip(scenarios, processes.simulate_all(scenarios.values()), strict=True))


def shuffle(nbytes: int) -> Scenario:
    """A groupby that shuffles peer to peer, in which only the network takes time."""
    return scenario(
        workload={"name": "groupby", "params": {"rows": 24_000, "partitions": 24, "groups": 3_000}},
        tasks={"part": [(0.0, 0.0, 8)]},
        rates_mbit=dict.fromkeys(MACHINES, 10.0),
        shuffled_bytes=nbytes,
        late_s=(0.0, 5.0),
    )


def test_same_seed_gives_the_same_digest_in_every_process(outcomes: dict[str, Outcome]) -> None:
    first, same, other = (outcomes[name] for name in ("first", "same seed", "other seed"))
    assert first.digest == same.digest != other.digest
    assert (first.repeats, first.ops) == (same.repeats, same.ops)


def test_digest_does_not_depend_on_where_the_project_is(outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "lab", tmp_path / "lab", ignore=shutil.ignore_patterns("__pycache__"))
    process = subprocess.run(
        [sys.executable, "-m", "dasklab.sim"],
        input=scenario(seed=3).model_dump_json(),
        env=os.environ | {"PYTHONHASHSEED": "3", "PYTHONPATH": str(tmp_path / "lab")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Outcome.model_validate_json(process.stdout).digest == outcomes["first"].digest


def test_slower_network_takes_longer(outcomes: dict[str, Outcome]) -> None:
    fast, slow = outcomes["first"].repeats[0], outcomes["slow network"].repeats[0]
    # Each result is 200 kB and crosses a link of 10 Mbit/s in 0.16 s
    assert slow.duration_s > fast.duration_s + 0.16
    assert slow.transfer_bytes >= 200_000


def test_tasks_of_a_single_thread_run_one_after_the_other(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["single worker"]
    # 1 s in the client, then 5 tasks of 2 s with a handoff of 0.2 s
    assert 1 + 5 * 2.2 < outcome.repeats[0].duration_s < 1 + 5 * 2.2 + 0.1
    assert outcome.handoff_s == pytest.approx(0.2, abs=0.001)
    assert outcome.unknown == ()


def test_shards_cross_the_link_of_the_worker_that_was_ready_first(outcomes: dict[str, Outcome]) -> None:
    without, with_shards = (outcomes[f"{name} shards"].repeats[0].duration_s for name in ("without", "with"))
    # The other workers have two pieces each, this one has 20: 100 kB of each leave at 1.25 MB/s
    assert 20 * 0.08 < with_shards - without < 20 * 0.08 * 1.2
    # of 24 pieces of 150 kB, two thirds are for others
    moved = (
        outcomes["with shards"].repeats[0].transfer_bytes
        - outcomes["without shards"].repeats[0].transfer_bytes
    )
    assert moved == pytest.approx(24 * 150_000 * 2 / 3, rel=0.1)


def test_mistake_in_a_scenario_is_one_line() -> None:
    with pytest.raises(LabError, match=r"^simulation, seed 0: racks: they hold 1 workers, there are 3$"):
        processes.simulate(scenario(racks=[{"workers": 1}]))


def test_process_that_has_imported_dask_is_refused() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(LabError, match="a process of its own"):
        simulate.simulate(scenario())
