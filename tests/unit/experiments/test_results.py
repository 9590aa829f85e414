"""Asked against delivered, the tidy table, statistics with known answers, and what may be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import FakeLab, answers
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import LabError
from lab.model import experiment
from lab.model.experiment import Experiment, Tolerances
from lab.results import compare, store, validity
from lab.results.measures import Interval, answer, difference, median, ratio, slope
from lab.running import driver
from lab.running.trials import Trial, plan


def sloped(trial: Trial) -> float:
    return 4.0 + 0.02 * float(trial.factors["delay_ms"])


def spoiled(measured: Callable[..., driver.Run], change: Callable[[dict], object]) -> list[str]:
    """The reasons of the 50 ms trials after their files were changed."""

    def spoil(trial: Trial, files: dict) -> int:
        if trial.cell == "delay_ms=50":
            change(files)
        return 0

    verdicts = store.assess(measured(FakeLab(spoil=spoil)).directory)
    invalid = [verdict for verdict in verdicts.values() if verdict.status == "invalid"]
    assert {verdict.cell for verdict in invalid} <= {"delay_ms=50"}
    return invalid[0].reasons if invalid else []


def test_as_asked_is_valid(measured: Callable[..., driver.Run]) -> None:
    assert {v.status for v in store.assess(measured(FakeLab()).directory).values()} == {"ok"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda f: f["delivered.json"]["rtt"][1].update(samples_ms=[41.0] * 10),
            "scheduler to worker-1, after the runs: 50 ms asked, 40.00 added (tolerance 2.50)",
        ),
        (
            lambda f: f["delivered.json"]["rtt"][0].update(samples_ms=[]),
            "scheduler to worker-1, before the runs: 10 of 10 pings were lost, 0 % loss was asked",
        ),
        (
            lambda f: f["configured.json"]["hosts"]["scheduler"]["qdisc_after"][0].update(drops=7),
            "scheduler: netem dropped 7 frames though no loss was asked (its limit was too small)",
        ),
        (
            lambda f: f["configured.json"]["hosts"]["scheduler"].update(qdisc_after=[]),
            "scheduler: the impairment was gone when the runs ended",
        ),
        (
            lambda f: f["configured.json"]["hosts"].update(
                {"worker-2": {"qdisc_after": [{"kind": "netem"}]}}
            ),
            "worker-2: an impairment is left on a link that was asked to be clear",
        ),
        (
            lambda f: f["configured.json"]["bridge"].update(ageing_s=0),
            "a learning bridge was asked, its ageing time is 0 s",
        ),
        (
            lambda f: f.pop("delivered.json"),
            "nothing was measured of the links: delivered.json is missing",
        ),
    ],
)
def test_not_as_asked_is_invalid(
    measured: Callable[..., driver.Run], change: Callable[[dict], object], reason: str
) -> None:
    assert spoiled(measured, change) == [reason]


def judged(changes: dict, spoil: Callable[[dict], object] = lambda files: None) -> list[str]:
    """The reasons of a trial with these settings, against a baseline without."""
    document = {"title": "", "question": "", "metrics": {"compute_s": None}}
    base, trial = (plan("x", Experiment.model_validate(document | more))[0] for more in ({}, changes))
    random = np.random.default_rng(1)
    files = [answers(t, 1.0, random) for t in (base, trial)]
    spoil(files[1])
    reference = validity.baseline(base, [files[0]["delivered.json"]])
    return validity.judge(
        trial, files[1]["configured.json"], files[1]["delivered.json"], reference, Tolerances()
    )


CAPPED = {"nics": {"worker-1": {"model": "e1000", "rate_mbit": 1000}}}


def host(**facts: object) -> Callable[[dict], object]:
    return lambda files: files["configured.json"]["hosts"].update({"worker-1": facts})


def deliver(mbit: float) -> Callable[[dict], object]:
    return lambda files: files["delivered.json"]["throughput"][0].update(mbit=mbit)


def test_rates() -> None:
    assert judged(CAPPED) == []
    assert judged(CAPPED, deliver(1033)) == []  # the token bucket's burst over two seconds
    assert judged(CAPPED, deliver(1040)) == [
        "scheduler to worker-1: a cap of 1000 Mbit/s was asked, 1040.0 went through"
    ]
    assert judged(CAPPED, deliver(500)) == [
        "scheduler to worker-1: a cap of 1000 Mbit/s was asked, only 500.0 went through"
    ]


def test_a_policer_lets_tcp_through_as_it_likes() -> None:
    """Seen for real: 24 to 51 of 100 Mbit/s. More than the cap is still too much."""
    policed = {"links": {"worker-1": {"rate_mbit": 100, "policer": True, "direction": "both"}}}

    assert judged(policed, deliver(24)) == []
    assert judged(policed, deliver(150)) == [
        "scheduler to worker-1: a cap of 100 Mbit/s was asked, 150.0 went through"
    ]


@pytest.mark.parametrize(
    ("pings", "reason"),
    [
        ([21.0] * 7 + [1.0] * 3, None),
        ([21.0] * 5 + [1.0] * 5, None),  # seen for real: the median of these is no delay of any
        ([21.0] * 1 + [1.0] * 9, "25 % asked, 9 of 10 pings sent ahead"),
        ([18.0] * 7 + [1.0] * 3, "20 ms asked, 17.00 added (tolerance 1.00)"),
    ],
)
def test_pings_sent_ahead_have_no_delay(pings: list[float], reason: str | None) -> None:
    def ping(files: dict) -> None:
        files["delivered.json"]["rtt"][0]["samples_ms"] = pings
        files["delivered.json"]["rtt"][1]["samples_ms"] = [21.0] * 8 + [1.0] * 2
        host(qdisc_after=[{"kind": "netem"}])(files)

    reasons = judged({"links": {"worker-1": {"delay_ms": 20, "reorder_pct": 25}}}, ping)
    assert reasons == ([f"scheduler to worker-1, before the runs: {reason}"] if reason else [])


def test_nic_is_the_one_asked_for() -> None:
    assert judged(CAPPED, host(driver="e1000", net="e1000=02:00,bridge=vmbr1,rate=119.209")) == []
    assert judged(CAPPED, host(driver="virtio_net")) == [
        "worker-1: NIC e1000 was asked, the guest's driver is virtio_net"
    ]
    assert judged(CAPPED, host(net="e1000=02:00,bridge=vmbr1,rate=125")) == [
        "worker-1: a cap of 1000 Mbit/s was asked, the hypervisor has 1048.6"
    ]


@pytest.mark.parametrize(("drops", "valid"), [(500, True), (560, True), (600, False), (0, False)])
def test_loss_lies_in_its_binomial_interval(drops: int, valid: bool) -> None:
    queue = {"kind": "netem", "drops": drops, "packets": 10_000 - drops}
    reasons = judged(
        {"links": {"worker-1": {"loss_pct": 5}}}, host(qdisc_after=[queue], offloads={"tso": False})
    )
    assert (reasons == []) is valid, reasons


def test_a_full_queue_before_a_capped_link_is_no_loss() -> None:
    dropped = host(qdisc_after=[{"kind": "netem", "drops": 9, "packets": 10_000}])
    assert judged({"links": {"worker-1": {"rate_mbit": 100}}}, dropped) == []
    policed = {"links": {"worker-1": {"rate_mbit": 100, "policer": True, "delay_ms": 5}}}
    assert "worker-1: netem dropped 9 frames though no loss was asked (its limit was too small)" in judged(
        policed, dropped
    )


@pytest.mark.parametrize(("lost", "valid"), [(0, True), (2, True), (8, False)])
def test_lost_pings_lie_in_the_same_interval(lost: int, valid: bool) -> None:
    def lose(files: dict) -> None:
        files["delivered.json"]["rtt"][0]["sent"] = 10 + lost
        host(qdisc_after=[{"kind": "netem"}])(files)

    reasons = judged({"links": {"worker-1": {"loss_pct": 5}}}, lose)
    said = "scheduler to worker-1, before the runs: 8 of 18 pings were lost, 5 % loss was asked"
    assert reasons == ([] if valid else [said])


def test_super_packets_are_not_counted_as_frames() -> None:
    queue = {"kind": "netem", "drops": 10, "packets": 10_000}
    assert (
        judged({"links": {"worker-1": {"loss_pct": 5}}}, host(qdisc_after=[queue], offloads={"tso": True}))
        == []
    )


def test_a_clock_of_another_speed_is_noticed() -> None:
    """Seen for real: a guest restarted on a busy host took its counter for 5.4 times as fast as it was."""
    seconds = {"client": 119.0, "scheduler": 119.1, "worker-1": 644.2, "worker-2": 118.5}
    machines = {"hosts": {host: {"seconds": taken} for host, taken in seconds.items()}}
    assert validity.clocks(machines) == ["worker-1: its clock ran 5.41 times as fast as the others'"]
    assert validity.clocks({}) == []


def test_delay_counts_each_way_it_is_passed() -> None:
    links = {
        "scheduler": {"delay_ms": 5, "direction": "both"},
        "worker-1": {"delay_ms": 2, "peer": "worker-2"},
    }
    document = {"title": "", "question": "", "metrics": {"compute_s": None}, "links": links}
    trial = plan("x", Experiment.model_validate(document))[0]
    assert validity.added_delay_ms(trial, "worker-1", "scheduler") == 10
    assert validity.added_delay_ms(trial, "worker-2", "worker-1") == 2
    assert validity.added_delay_ms(trial, "worker-2", "worker-3") == 0


def test_table_has_a_row_per_sample(measured: Callable[..., driver.Run]) -> None:
    run = measured(FakeLab(sloped))
    frame = store.load(run.directory)
    assert frame.attrs["factors"] == ["delay_ms"]
    assert (frame.metric == "compute_s").sum() == 8 * 6
    assert (frame.metric == "rtt_ms").sum() == 8 * 20
    assert list(frame.cell.unique()) == ["delay_ms=0", "delay_ms=50", "delay_ms=200"]
    written = store.load(run.directory / "samples.parquet")
    pd.testing.assert_frame_equal(frame, written, check_dtype=False)


def test_loss_as_drop_events_and_as_segments(tmp_path: Path) -> None:
    """One event took a super-packet of many segments: netem's count and TCP's differ, both are told."""
    looks = {f"qdisc_{when}": [{"kind": "netem", "drops": n}] for when, n in (("before", 3), ("after", 10))}
    clear = {"qdisc_before": [{"kind": "pfifo_fast", "drops": 1}], "qdisc_after": None}
    configured = {"hosts": {"worker-1": looks, "worker-2": clear}}
    tcp = [{"OutSegs": 900, "RetransSegs": 45}, {"OutSegs": 100, "RetransSegs": 5}]
    hosts = {"hosts": {f"worker-{i}": {"tcp": counted} for i, counted in enumerate(tcp, 1)}}
    for name, document in (("configured.json", configured), ("hosts.json", hosts)):
        store.write_json(tmp_path / name, document)
    found = {sample["metric"]: sample["value"] for sample in store.samples(tmp_path)}
    assert found == {"drop_events": 7, "resent_pct": 5.0}


def test_probes_of_links_that_no_trial_changes_leave_the_statistics(
    measured: Callable[..., driver.Run],
) -> None:
    """The median over touched and untouched links would be that of neither."""
    run = measured(FakeLab(sloped))
    for path in run.directory.glob("*/delivered.json"):
        delivered = json.loads(path.read_text())
        other = {"src": "worker-2", "dst": "worker-3", "samples_ms": [0.1]}
        delivered["rtt"].append(delivered["rtt"][0] | other)
        path.write_text(json.dumps(delivered))
    frame = store.load(run.directory)
    untouched = frame[(frame.src == "worker-2") & (frame.metric == "rtt_ms")]
    assert len(untouched) and not untouched.tested.any()
    found = answer(frame, "rtt_ms", ["delay_ms"])
    assert found is not None and found.cells[0].lowest > 0.1


def told(folder: Path, name: str, factor: str, *pairs: tuple[str, str]) -> dict[str, set[str]]:
    """Run an experiment whose trials ping between these pairs: by cell, who was pinged where it is told."""
    run = driver.start(folder, *experiment.load(name, quick=True), quick=True)
    driver.execute(run, FakeLab(lambda trial: 4.0), lambda trial, state: None)
    for path in run.directory.glob("*/delivered.json"):
        delivered = json.loads(path.read_text())
        delivered["rtt"] = [delivered["rtt"][0] | {"src": src, "dst": dst} for src, dst in pairs]
        path.write_text(json.dumps(delivered))
    rtt = store.load(run.directory).query("metric == 'rtt_ms' and tested")
    return {cell: set(mine.dst) for cell, mine in rtt.groupby(factor)}


def test_a_trials_probes_are_those_of_the_links_it_changes(tmp_path: Path) -> None:
    """In a trial of the scheduler's link the worker's links say nothing; the baseline needs all of them."""
    tested = told(tmp_path, "slow_links", "slow", ("client", "scheduler"), ("worker-2", "worker-1"))
    assert tested["scheduler"] == {"scheduler"} and tested["worker"] == {"worker-1"}
    assert tested["none"] == tested["all"] == {"scheduler", "worker-1"}


def test_a_way_to_one_peer_is_told_of_that_pair(tmp_path: Path) -> None:
    tested = told(tmp_path, "pair_delay", "delayed", ("scheduler", "worker-1"), ("worker-1", "worker-2"))
    assert tested["worker-1 to scheduler"] == {"worker-1"} and tested["worker-1 to worker-2"] == {"worker-2"}
    assert tested["worker-1 to all"] == tested["none"] == {"worker-1", "worker-2"}


def test_slope_and_verdicts(measured: Callable[..., driver.Run]) -> None:
    frame = store.load(measured(FakeLab(sloped)).directory)
    found = answer(frame, "compute_s", ["delay_ms"])
    assert found is not None and found.null is not None
    assert [cell.shown for cell in found.cells] == [False, True, True]
    assert found.cells[2].ratio.value == pytest.approx(2, rel=0.02)
    assert found.slopes["delay_ms"].low < 0.02 < found.slopes["delay_ms"].high
    assert found.null.low < 0 < found.null.high


def test_no_difference_is_not_shown(measured: Callable[..., driver.Run]) -> None:
    found = answer(store.load(measured(FakeLab()).directory), "compute_s", ["delay_ms"])
    assert found is not None and not any(cell.shown for cell in found.cells)


def test_invalid_trials_leave_the_statistics(measured: Callable[..., driver.Run]) -> None:
    def break_link(trial: Trial, files: dict) -> int:
        if trial.cell == "delay_ms=200":
            files["delivered.json"]["rtt"][0]["samples_ms"] = [1.0] * 10
        return 0

    found = answer(store.load(measured(FakeLab(spoil=break_link)).directory), "compute_s", ["delay_ms"])
    assert found is not None and [cell.name for cell in found.cells] == ["delay_ms=0", "delay_ms=50"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=20))
def test_interval_holds_the_estimate(values: list[float]) -> None:
    found = median(np.array(values))
    assert found.low <= found.value <= found.high


def test_drift_between_blocks_is_no_difference() -> None:
    random = np.random.default_rng(2)
    base = {1: random.normal(4, 0.05, 10), 2: random.normal(8, 0.05, 10)}
    same = {1: random.normal(4, 0.05, 10), 2: random.normal(8, 0.05, 10)}
    assert not difference(same, base).excludes(0)
    assert difference(same, base).high < 0.1
    twice = {block: 2 * values for block, values in base.items()}
    assert ratio(twice, base).value == pytest.approx(2, rel=0.02)


def test_nothing_is_so_many_times_zero() -> None:
    found = ratio({1: np.array([1.0, 2.0])}, {1: np.zeros(2)})
    assert not np.isfinite(found.value) and np.isnan(found.low)


def test_slope_of_a_line() -> None:
    x = np.repeat([0.0, 1, 2, 3], 3)
    assert slope(x, 1 + 3 * x).value == pytest.approx(3)


def test_one_sample_has_no_interval() -> None:
    found = median(np.array([1.0]))
    assert np.isnan(found.low) and not found.excludes(0)
    assert Interval(1.0, -2.0, 1.5).reach == 2


def test_compare_refuses_what_differs(measured: Callable[..., driver.Run]) -> None:
    def kvm(trial: Trial, files: dict) -> int:
        files["hosts.json"]["hypervisor"]["accel"] = "kvm"
        return 0

    old, same, other = (measured(FakeLab(sloped, spoil), f"x{i}").directory
                        for i, spoil in enumerate((lambda t, f: 0, lambda t, f: 0, kvm)))  # fmt: skip
    changes = {(c.metric, c.cell): c for c in compare.compare(old, same)}
    assert changes["compute_s", "delay_ms=50"].ratio.value == pytest.approx(1, rel=0.05)
    with pytest.raises(LabError, match="not comparable: accelerator tcg and kvm"):
        compare.compare(old, other)
    assert compare.compare(old, other, anyway=True)


def test_files_of_another_schema_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema": 2}')
    with pytest.raises(LabError, match="schema 2, this version of the lab reads 1"):
        store.read_json(tmp_path / "a.json")
    with pytest.raises(LabError, match="no results there"):
        store.load(tmp_path)
