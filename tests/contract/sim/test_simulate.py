"""Real Dask in virtual time, in processes of its own: the same in each of them."""

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
from dasklab.paths import WORKLOADS
from dasklab.predict import farm
from dasklab.sim import simulate
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.sim.samples import MACHINES, scenario


@pytest.fixture(scope="module")
def ran() -> list[Outcome]:
    """At once, for each costs seconds: a seed twice, another, a slow network, lone tasks, light workers."""
    slow = scenario(seed=3, rates_mbit=dict.fromkeys(MACHINES, 10))
    alone = scenario(
        workload={"name": "parallel_tasks", "params": {"tasks": 5}},
        workers=1,
        tasks={"work": [(1.5, 0.5, 28)]},
        driver_s=1.0,
        handoff_s=0.2,
    )
    light = scenario(seed=3, design="light")
    same = [scenario(seed=3), scenario(seed=3), scenario(seed=4)]
    return farm.simulate_all([*same, slow, alone, light, shuffles(0), shuffles(150_000)])


def shuffles(nbytes: int) -> Scenario:
    """A groupby that shuffles peer to peer; nothing but the network takes time."""
    return scenario(
        workload={"name": "groupby", "params": {"rows": 24_000, "partitions": 24, "groups": 3_000}},
        tasks={"part": [(0.0, 0.0, 8)]},
        rates_mbit=dict.fromkeys(MACHINES, 10.0),
        shuffled_bytes=nbytes,
        late_s=(0.0, 5.0),
    )


def test_the_same_seed_does_the_same_in_every_process_another_does_not(ran: list[Outcome]) -> None:
    one, same, other = ran[:3]
    assert one.digest == same.digest != other.digest
    assert (one.runs, one.ops) == (same.runs, same.ops)


def test_the_same_wherever_the_project_is(ran: list[Outcome], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "lab", tmp_path / "lab", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "dasklab.sim"],
        input=scenario(seed=3).model_dump_json(),
        env=os.environ | {"PYTHONHASHSEED": "3", "PYTHONPATH": str(tmp_path / "lab")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Outcome.model_validate_json(done.stdout).digest == ran[0].digest


def test_a_slower_network_takes_longer(ran: list[Outcome]) -> None:
    quick, slow = ran[0].runs[0], ran[3].runs[0]
    # each result is 200 kB and crosses a 10 Mbit/s link in 0.16 s
    assert slow.duration_s > quick.duration_s + 0.16
    assert slow.transfer_bytes >= 200_000


def test_tasks_of_one_thread_follow_each_other_after_what_the_client_computes(ran: list[Outcome]) -> None:
    assert 1 + 5 * 2.2 < ran[4].runs[0].duration_s < 1 + 5 * 2.2 + 0.1
    assert ran[4].handoff_s == pytest.approx(0.2, abs=0.001)
    assert ran[4].unknown == ()


def test_workers_that_are_only_state_machines_agree_with_whole_ones(ran: list[Outcome]) -> None:
    whole, light = ran[0], ran[5]
    assert light.runs[0].duration_s == pytest.approx(whole.runs[0].duration_s, rel=0.05)
    assert light.runs[0].transfer_bytes == pytest.approx(whole.runs[0].transfer_bytes, rel=0.2)
    assert light.ops["scheduler"] == pytest.approx(whole.ops["scheduler"], rel=0.1)
    assert sum(light.ops.values()) == pytest.approx(sum(whole.ops.values()), rel=0.1)


def test_shards_cross_the_link_of_the_worker_that_was_ready_first(ran: list[Outcome]) -> None:
    none, sent = (outcome.runs[0].duration_s for outcome in ran[6:])
    # the others have two pieces each, it has 20: of each 100 kB leave it at 1.25 MB/s, between messages
    assert 20 * 0.08 < sent - none < 20 * 0.08 * 1.2


def test_workload_of_the_users_own_is_simulated(ran: list[Outcome]) -> None:
    source = (WORKLOADS / "parallel_tasks.py").read_text().replace("def work(", "def labour(")
    source = source.replace("client.map(work", "client.map(labour")
    own = {"name": "mywork", "params": {"tasks": 5}, "source": source}
    [outcome] = farm.simulate_all(
        [scenario(workload=own, workers=1, tasks={"labour": [(1.5, 0.5, 28)]}, driver_s=1.0, handoff_s=0.2)]
    )
    assert outcome.unknown == ()
    assert outcome.runs[0].duration_s == pytest.approx(ran[4].runs[0].duration_s, abs=0.1)


def test_a_mistake_is_one_line() -> None:
    with pytest.raises(LabError, match=r"^simulation, seed 0: racks: they hold 1 workers, there are 3$"):
        farm.simulate(scenario(racks=[{"workers": 1}]))


def test_it_refuses_a_process_that_has_dask_already() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(LabError, match="a process of its own"):
        simulate.simulate(scenario())
