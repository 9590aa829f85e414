"""The benchmark beyond the lab: its cells, where scaling stops, what is marked as extrapolated."""

from __future__ import annotations

import pytest
from dasklab.model.files import Outcome, SimulatedRepeat
from dasklab.sim import build
from dasklab.sim.kernel import Kernel
from dasklab.sim.scenario import Scenario

from benchmarks import sim_scale
from benchmarks.sim_scale import Point, ScaleCell
from tests.unit.dasklab.predict.samples import CALIBRATION, PAYLOAD, TRIAL


def point(workers: int, seconds: float, *, tasks_each: int = 10, busy: float = 0.5) -> Point:
    """A cell of tiny tasks with this duration."""
    run = SimulatedRepeat(warmup=False, duration_s=seconds, transfer_bytes=2_500_000_000)
    outcome = Outcome(
        seed=0,
        repeats=(run,),
        digest="",
        messages=0,
        ops={},
        unknown=(),
        computed=tasks_each * workers,
        scheduler_busy_s=busy * seconds,
        cpu_s=4,
        memory_mb=123,
    )
    return Point(ScaleCell("merge", workers, "one rack"), outcome)


def scale_scenario(workload: str, workers: int, place: str) -> Scenario:
    return sim_scale.scale_scenario(ScaleCell(workload, workers, place), TRIAL, CALIBRATION)


def test_tasks_grow_with_the_workers() -> None:
    for workers in (30, 1000, 10_000):
        tasks = sim_scale.sized("merge", workers).params["tasks"]
        parts = sim_scale.sized("shuffle", workers).params["parts"]
        assert isinstance(parts, int)
        assert (tasks, parts**2 + 2 * parts + 1) == (10 * workers - 1, pytest.approx(10 * workers, rel=0.06))


@pytest.mark.parametrize("place", sim_scale.PLACES)
@pytest.mark.parametrize("workers", [100, 1000])
def test_every_worker_has_its_rack_and_rate(place: str, workers: int) -> None:
    scenario = scale_scenario("merge", workers, place)
    ports = build.network(scenario, Kernel()).ports
    assert (scenario.workers, scenario.design, len(ports)) == (workers, "light", workers + 2)
    assert ports["worker-7"].up.rate == pytest.approx(125e6 * PAYLOAD)
    assert ports["scheduler"].up.rate == pytest.approx(1250e6 * PAYLOAD)
    racks = {id(port.rack) for port in ports.values() if port.rack}
    assert len(racks) == {"one rack": 0, "40 racks": 40, "two sites": 2}[place]


def test_round_trip_includes_the_uplinks_between_racks_and_sites() -> None:
    def round_trip_s(place: str, target: str) -> float:
        scenario = scale_scenario("merge", 100, place).model_copy(update={"rtt_ms": 0.0})
        return build.network(scenario, Kernel()).path("worker-1", target).rtt_s

    assert round_trip_s("40 racks", "worker-2") == 0
    assert round_trip_s("40 racks", "worker-100") == pytest.approx(4 * 0.05e-3)
    assert round_trip_s("two sites", "scheduler") == 0  # at the first site, too
    assert round_trip_s("two sites", "worker-100") == pytest.approx(2 * 5e-3)


def test_tasks_are_the_trials_own_or_reported_as_assumed() -> None:
    assert set(scale_scenario("array_study", 10, "one rack").tasks) == {"add"}
    assumed = scale_scenario("groupby", 10, "one rack")
    assert assumed.tasks == {"assumed": ((0.010, 0.0, 1_600_000),)}
    report = sim_scale.report([point(3, 1.0)], [], TRIAL, 3)
    assert "groupby 10 ms, 1.6 MB" in report
    assert "Extrapolated: all rows above 3 workers" in report


def test_scaling_stops_where_more_workers_execute_no_more_tasks_per_second() -> None:
    # 100, 1000, 1500, 1520 tasks/s
    series = [point(10, 1.0), point(100, 1.0), point(300, 2.0), point(1000, 1000 / 152, busy=0.99)]
    assert sim_scale.knee(series) == "stops at 300 workers and 1,500 tasks/s, the scheduler 50% busy"
    assert sim_scale.knee(series[:2]) == "scales beyond 100 workers (1,000 tasks/s)"


def test_row_has_duration_bytes_scheduler_share_and_cost_of_the_simulation() -> None:
    assert point(1000, 5.0).row() == (
        "| tiny tasks | one rack | 1,000 | 10,000 | 5.00 | 2,000 | 2.50 | 50% | 4.00 | 123 |"
    )


def test_picture_is_below_the_tables() -> None:
    assert sim_scale.with_picture("| table |").startswith("| table |\n\n![")
    assert "(simulation-scale.png)" in sim_scale.with_picture("")
