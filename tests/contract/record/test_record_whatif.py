"""What a recorded block would take with other settings: predicted from a record of a real cluster."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dasklab
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.predict import record, record_whatif
from dasklab.predict.engine import processes
from dasklab.predict.record_memory import HeldData
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, as_completed

from tests.contract.record.short_tasks import TASK_S, fail, sleep

TASKS, PAUSE_S = 16, 2.0
DATA = Path(__file__).parents[2] / "data" / "records"


@pytest.fixture(scope="module")
def run(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A map, a pause, a task that needs its results and data that was scattered, then work as it ends."""
    with Client(cluster) as client:
        client.gather(client.map(sleep, range(-10, 0)))  # first imports are not what is predicted
        with dasklab.record(client, tmp_path_factory.mktemp("record") / "run") as run:
            futures = client.map(sleep, range(TASKS))
            client.gather(futures)
            time.sleep(PAUSE_S)
            data = client.scatter(b"0" * 100_000, hash=False)
            client.submit(sleep, 100, data, *futures).result()
            done = as_completed([client.submit(sleep, 100 + number) for number in (2, 3)])
            done.add(client.submit(sleep, next(done), "again"))
            list(done)
            with pytest.raises(ValueError, match="7"):
                client.submit(fail, 7).result()
        yield run


@pytest.fixture(scope="module")
def work(run: Any) -> record.RecordedWork:
    return record.read(open_trial(run.folder))


def test_program_has_the_clients_steps_in_order(work: record.RecordedWork) -> None:
    program = work.client_program.program
    steps = [step.does for step in program.steps if step.does != "pause"]
    assert steps[:3] == ["send", "wait", "gather"]
    first_wait = next(step for step in program.steps if step.does == "wait")
    assert first_wait.results == ((0, TASKS),)  # nothing is sent before all results of the map are there
    assert steps.index("scatter") < [place for place, does in enumerate(steps) if does == "send"][1]
    assert max(step.seconds for step in program.steps) >= PAUSE_S
    third, fourth = (position for position, step in enumerate(program.steps) if step.graph in (2, 3))
    sent_again = next(position for position, step in enumerate(program.steps) if step.graph == 4)
    assert any(step.total for step in program.steps[max(third, fourth) : sent_again])
    assert work.limits[0] == "Left out: 1 failed attempt. The simulation has no failures."


def test_more_workers_shorten_what_waits_for_a_thread_and_nothing_else(run: Any) -> None:
    predicted = run.whatif(seeds=1, workers=8)
    measured, unchanged, changed = (row.mean_s for row in predicted.rows)
    assert unchanged == pytest.approx(measured, rel=0.5)  # other tests may keep the CPUs busy
    fewer_rounds = TASKS / 2 - TASKS / 8
    assert changed < unchanged - fewer_rounds * TASK_S / 3
    one_after_the_other = TASKS / 8 + 3  # rounds of the map, then tasks that wait for results before them
    assert changed > PAUSE_S + one_after_the_other * TASK_S
    assert "differs by" in predicted.notes[0]
    assert "measured" in str(predicted)
    assert "<table" in predicted._repr_html_()


def test_command_prints_measured_first_then_unchanged_then_changed(run: Any) -> None:
    arguments = ["whatif", str(run.folder), "--set", "rtt_ms=50", "--seeds", "1", "--json"]
    printed = CliRunner().invoke(main, arguments, catch_exceptions=False)
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [row["what"] for row in rows] == ["measured", "simulated, unchanged", "simulated, rtt_ms=50"]
    assert rows[2]["mean_s"] > rows[1]["mean_s"] + 0.2  # several round trips


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"worker": 3}, "--set worker: not a setting of a record; allowed: .* Did you mean workers?"),
        ({"links": {"worker-9": {"delay_ms": 1}}}, r"--set links\.worker-9: no such host"),
        ({"links": {"worker-1": {"delay": 1}}}, r"links\.worker-1\.delay: unknown key"),
        ({"dask": {"distributed.scheduler.worker-saturatoin": 1}}, "close to it: .*worker-saturation"),
        ({"dask": {"distributed.comm.compression": "lz4"}}, "compression: the simulation does not model it"),
        ({"bridge": "flooding"}, "not a setting of a record"),
    ],
)
def test_unknown_change_is_refused_with_what_is_allowed(
    work: record.RecordedWork, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(LabError, match=message):
        record.check(work, changes)


def test_workers_that_could_not_hold_the_results_are_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_whatif, "held_data", lambda *_: HeldData(most=5e9, limit=4e9, other=1e9))
    said = {
        workers: record_whatif.whatif_folder(run.folder, 1, {"workers": workers}).notes for workers in (1, 2)
    }
    assert any(note.startswith("1 worker could not hold the 5 GB of results") for note in said[1])
    assert not any("could not hold" in note for note in said[2])


def test_calibration_of_another_trial_is_refused(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text("{}", encoding="utf-8")
    printed = CliRunner().invoke(main, ["whatif", str(run.folder), "--calibration", str(file)])
    assert "has costs of its own" in printed.output


def test_block_that_the_simulation_misses_is_not_predicted(tmp_path: Path) -> None:
    """In the record, a graph of 6 MB took 3 s on the client's own link; graphs are simulated without data."""
    folder = Path(shutil.copytree(DATA / "slow_link_graph", tmp_path / "run"))
    result = CliRunner().invoke(main, ["whatif", str(folder), "--set", "workers=4", "--seeds", "1"])
    assert result.exit_code == 1
    assert "no prediction for" in result.output and "without a change takes" in result.output
    assert CliRunner().invoke(main, ["whatif", str(folder), "--seeds", "1"]).exit_code == 0


def test_clients_own_link_is_simulated(tmp_path: Path) -> None:
    """6 MB cross the client's link of 16 Mbit/s in 3.3 s, whatever the workers do."""
    run = open_trial(Path(shutil.copytree(DATA / "slow_link_scatter", tmp_path / "run")))
    work = record.read(run)
    assert work.client_link.mbit == pytest.approx(16, rel=0.35)
    predicted = record_whatif.predict(run, {"links": {"client": {"rate_mbit": 4}}}, "slower", [0])
    measured, unchanged, slower = (row.mean_s for row in predicted.rows)
    assert unchanged == pytest.approx(measured, rel=0.25)
    assert slower > 2.5 * unchanged


def test_peer_to_peer_shuffle_is_simulated_with_the_bytes_it_moved(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    dd = pytest.importorskip("dask.dataframe")
    meta = frame(0, 0)
    with Client(cluster) as client, dask.config.set({"dataframe.shuffle.method": "p2p"}):
        shuffled = dd.from_map(frame, range(8), rows=20_000, meta=meta).shuffle("a")
        client.compute(shuffled.b.sum()).result()  # first imports are not what is predicted
        with dasklab.record(client, tmp_path / "run") as run:
            client.compute(shuffled.b.sum()).result()
    work = record.read(open_trial(run.folder))
    assert work.calibration.shuffled_bytes == pytest.approx(20_000 * 16, rel=0.1)
    half = pytest.approx(8 * 20_000 * 16 / 2, rel=0.1)  # the other half of the data stays on its worker
    assert work.repeat.shards.nbytes.sum() == half
    assert work.moved_bytes == work.repeat.moved.sum() + work.repeat.shards.nbytes.sum()
    calibration = record.calibrate(work)
    changes: list[dict[str, Any]] = [{}, {"workers": 5}, {"rate_mbit": 1}]
    scenarios = [record.scenario(work, calibration, change, seed=0) for change in changes]
    simulated = [outcome.repeats[0] for outcome in processes.simulate_all(scenarios)]
    assert simulated[0].transfer_bytes == pytest.approx(work.moved_bytes, rel=0.5)
    durations_s = [repeat.duration_s for repeat in simulated]
    shards_s = 8 * 20_000 * 16 / 2 / 2 * 8 / 1e6  # half of the data, from two workers, at 1 Mbit/s
    assert durations_s[2] > durations_s[0] + shards_s / 2 > durations_s[1]


def frame(seed: int, rows: int) -> Any:
    dice = np.random.default_rng(seed)
    return pd.DataFrame({"a": dice.integers(0, 100, rows), "b": dice.random(rows)})


def test_factors_hold_for_requested_links_of_a_record(work: record.RecordedWork) -> None:
    changes = {"links": {"worker-1": {"delay_ms": 10, "rate_mbit": 8}}, "rtt_times": 2, "rate_times": 0.5}
    work = replace(work, calibration=work.calibration.model_copy(update={"uncapped_mbit": 100.0}))
    link = record.scenario(work, work.calibration, changes, seed=0).links["worker-1"]
    assert (link.delay_ms, link.rate_mbit) == (20, 4)


def test_sizes_of_a_cluster_cost_more_the_more_threads_idle(run: Any) -> None:
    scaled = run.scale("workers", 2, 16, 64, seeds=1)
    few, more, most = scaled.points
    assert few.seconds.mean_s > more.seconds.mean_s
    assert few.paid_s < more.paid_s < most.paid_s
    assert 1 >= few.at_work > more.at_work > most.at_work > 0
    assert scaled.best is more  # 16 tasks at once are all that this program has
    assert scaled.floor_s >= PAUSE_S  # the client's pause is on every path
    assert "beyond it the client's own code limits" in scaled.sentence
    for point in scaled.points:
        assert sum(point.thread_s.values()) == pytest.approx(point.paid_s)
    assert most.wasted_s["client"] == pytest.approx(64 * PAUSE_S * 2, rel=0.5)  # two threads each
    assert few.wasted_s["few tasks"] < more.wasted_s["few tasks"] < most.wasted_s["few tasks"]
    assert "<svg" in scaled._repr_html_()
    assert str(scaled).startswith("The fewest workers within 10 % of the best time: 16 ")
    arguments = ["whatif", str(run.folder), "--scale", "threads=2", "--seeds", "1", "--json"]
    document = json.loads(CliRunner().invoke(main, arguments, catch_exceptions=False).stdout)
    assert [point["threads"] for point in document["points"]] == [4]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("worker", "allowed: workers, threads, rate_mbit. Did you mean workers?"),
        ("workers=2,x", "write the amounts as whole numbers above 0, for example workers=2,4,8"),
        ("rate_mbit=0", "write the amounts as numbers above 0"),
        ("rate_mbit", "name the amounts, for example rate_mbit=100,1000"),
    ],
)
def test_size_that_cannot_be_simulated_is_refused_in_a_line(size: str, message: str) -> None:
    printed = CliRunner().invoke(main, ["whatif", str(DATA / "queue"), "--scale", size])
    assert printed.exit_code == 1
    assert message in " ".join(printed.output.split())
