"""The tidy table of samples: a row per sample, and which probes count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from dasklab.model.experiments import experiment
from dasklab.model.files import Configured, Hosts
from dasklab.model.settings.metric import METRICS
from dasklab.results import load
from dasklab.results.run import Trial
from dasklab.results.samples import samples
from dasklab.results.statistics.answers import answer
from dasklab.results.storage import documents
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.results.trials import files_of, trial
from tests.unit.dasklab.results.validity.test_node import FACTS

Measure = Callable[..., driver.ActiveRun]


def test_table_has_a_row_per_sample(measured: Measure) -> None:
    run = measured(FakeLab())
    frame = load(run.stored.folder)
    assert frame.attrs["factors"] == ["delay_ms"]
    assert (frame.metric == "compute_s").sum() == 8 * 6
    assert (frame.metric == "rtt_ms").sum() == 8 * 20
    assert list(frame.cell.unique()) == ["delay_ms=0", "delay_ms=50", "delay_ms=200"]
    under_load = frame[frame.metric == "rtt_loaded_ms"]
    assert len(under_load) == 8 * 2 * 3 and set(under_load.dst) == {"worker-1"}


def test_driver_writes_the_table(measured: Measure) -> None:
    run = measured(FakeLab())
    stored = load(run.stored.folder / "samples.parquet")
    pd.testing.assert_frame_equal(load(run.stored.folder), stored, check_dtype=False)


def test_every_metric_of_the_table_is_in_the_registry(measured: Measure) -> None:
    assert set(load(measured(FakeLab()).stored.folder).metric) <= set(METRICS)


def test_first_warm_up_is_the_first_run_of_a_fresh_cluster(tmp_path: Path) -> None:
    timings = files_of(trial(warmups=2, repeats=3))["timings.json"]
    (tmp_path / "timings.json").write_text(json.dumps(timings))
    rows = [row for row in samples(Trial(tmp_path)) if row["metric"] == "cold_s"]
    assert [(row["value"], row["warmup"]) for row in rows] == [(timings["samples"][0]["duration_s"], False)]


def test_loss_is_counted_as_drops_and_as_segments(tmp_path: Path) -> None:
    """A dropped super-packet has many segments, so netem's count and TCP's differ."""
    link = {"interface": "eth1", "driver": "", "mtu": 1500, "offloads": {}, "congestion_control": "cubic"}
    netem = {
        f"qdisc_{when}": [{"kind": "netem", "drops": drops}] for when, drops in (("before", 3), ("after", 10))
    }
    plain = {"qdisc_before": [{"kind": "pfifo_fast", "drops": 1}]}
    links = {"worker-1": link | netem, "worker-2": link | plain}
    documents.write(tmp_path, Configured.model_validate({"hosts": links}))
    counters = [{"OutSegs": 900, "RetransSegs": 45}, {"OutSegs": 100, "RetransSegs": 5}]
    hosts = {
        f"worker-{number}": FACTS | {"seconds": 100.0, "tcp": tcp} for number, tcp in enumerate(counters, 1)
    }
    node = {"name": "pve", "accel": "tcg"}
    documents.write(tmp_path, Hosts.model_validate({"hosts": hosts, "hypervisor": node}))
    values = {sample["metric"]: sample["value"] for sample in samples(Trial(tmp_path))}
    assert values == {"drop_events": 7, "retransmitted_pct": 5.0}


def test_probes_of_links_that_no_trial_changes_leave_the_statistics(measured: Measure) -> None:
    """The median over changed and unchanged links would be that of neither."""
    run = measured(FakeLab())
    for path in run.stored.folder.glob("*/measured.json"):
        document = json.loads(path.read_text())
        other = {"src": "worker-2", "dst": "worker-3", "samples_ms": [0.1], "pings": 1}
        document["rtt"].append(document["rtt"][0] | other)
        path.write_text(json.dumps(document))
    frame = load(run.stored.folder)
    unchanged = frame[(frame.src == "worker-2") & (frame.metric == "rtt_ms")]
    assert len(unchanged) and not unchanged.tested.any()
    result = answer(frame, "rtt_ms", ["delay_ms"])
    assert result is not None and result.cells[0].lowest > 0.1


def counted_targets(folder: Path, name: str, factor: str, *pairs: tuple[str, str]) -> dict[str, set[str]]:
    """Run an experiment whose trials ping between these pairs; map each level to the targets that count."""
    run = driver.start(folder, *experiment.load(name, quick=True), SETUP, quick=True)
    driver.execute(run, FakeLab(), lambda trial, state: None)
    for path in run.stored.folder.glob("*/measured.json"):
        document = json.loads(path.read_text())
        document["rtt"] = [document["rtt"][0] | {"src": src, "dst": dst} for src, dst in pairs]
        path.write_text(json.dumps(document))
    rtt = load(run.stored.folder).query("metric == 'rtt_ms' and tested")
    return {level: set(rows.dst) for level, rows in rtt.groupby(factor)}


def test_probes_of_a_trial_are_those_of_the_links_that_it_changes(tmp_path: Path) -> None:
    targets = counted_targets(
        tmp_path, "slow_links", "slow", ("client", "scheduler"), ("worker-2", "worker-1")
    )
    assert targets["scheduler"] == {"scheduler"} and targets["worker"] == {"worker-1"}
    assert targets["none"] == targets["all"] == {"scheduler", "worker-1"}


def test_link_that_changes_to_one_peer_is_probed_between_these_two(tmp_path: Path) -> None:
    targets = counted_targets(
        tmp_path, "pair_delay", "delayed", ("scheduler", "worker-1"), ("worker-1", "worker-2")
    )
    assert targets["worker-1 to scheduler"] == {"worker-1"}
    assert targets["worker-1 to worker-2"] == {"worker-2"}
    assert targets["worker-1 to all"] == targets["none"] == {"worker-1", "worker-2"}
