"""Asked against delivered, the tidy table, statistics with known answers, and what may be compared."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dasklab.errors import LabError
from dasklab.model import experiment
from dasklab.model.experiment import Experiment, Tolerances
from dasklab.model.files import Configured, Hosts, Measured
from dasklab.report import sentences
from dasklab.results import load
from dasklab.results.statistics import compare, reproduction
from dasklab.results.statistics.answers import answer
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.theil_sen import slope
from dasklab.results.statistics.typical import by_node, typical
from dasklab.results.storage import store
from dasklab.results.storage.samples import samples
from dasklab.results.validity import measured, routes, verdict
from dasklab.results.validity.configured import differences
from dasklab.running import driver
from dasklab.running.trials import plan
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json, answers, bucket, queue


def sloped(trial: Json) -> float:
    return 4.0 + 0.02 * float(trial["factors"]["delay_ms"])


def spoiled(measured: Callable[..., driver.ActiveRun], change: Callable[[dict], object]) -> list[str]:
    """The reasons of the 50 ms trials after their files were changed."""

    def spoil(trial: Json, files: Json) -> int:
        if trial["cell"] == "delay_ms=50":
            change(files)
        return 0

    verdicts = verdict.assess(measured(FakeLab(spoil=spoil)).directory)
    invalid = [found for found in verdicts.values() if found.status == "invalid"]
    assert {found.cell for found in invalid} <= {"delay_ms=50"}
    return list(invalid[0].reasons) if invalid else []


def test_as_asked_is_valid(measured: Callable[..., driver.ActiveRun]) -> None:
    assert {v.status for v in verdict.assess(measured(FakeLab()).directory).values()} == {"ok"}


def of(host: str, files: Json) -> Json:
    """What was read back of a host."""
    return files["configured.json"]["hosts"][host]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda f: f["measured.json"]["rtt"][1].update(samples_ms=[41.0] * 10),
            "scheduler to worker-1, after the runs: requested 50 ms of added delay, measured 40.00 ms"
            " (tolerance 2.50 ms)",
        ),
        (
            lambda f: f["measured.json"]["rtt"][0].update(samples_ms=[]),
            "scheduler to worker-1, before the runs: requested 0 % loss, 10 of 10 pings were lost",
        ),
        (
            lambda f: of("scheduler", f)["qdisc_after"][0].update(drops=7),
            "scheduler: netem dropped 7 frames, but no loss was requested (its limit was too small)",
        ),
        (
            lambda f: of("scheduler", f).update(qdisc_after=[]),
            "scheduler: the impairment was gone when the runs ended",
        ),
        (
            lambda f: of("worker-2", f).update(qdisc_after=of("scheduler", f)["qdisc_after"]),
            "worker-2: the impairment was another one when the runs ended: delay_ms 50 ms",
        ),
        (
            lambda f: f["configured.json"]["bridge"].update(ageing_s=0),
            "bridge: requested learning, but its ageing time is 0 s",
        ),
        (
            lambda f: f.pop("measured.json"),
            "the links were not measured: measured.json is missing",
        ),
        (
            lambda f: f.pop("configured.json"),
            "the links were not read back: configured.json is missing",
        ),
        (
            lambda f: f["configured.json"]["hosts"].pop("worker-3"),
            "worker-3: its link was not read back",
        ),
    ],
)
def test_not_as_asked_is_invalid(
    measured: Callable[..., driver.ActiveRun], change: Callable[[Json], object], reason: str
) -> None:
    assert spoiled(measured, change) == [reason]


def test_a_delay_a_hundred_times_too_long_is_invalid_whatever_the_pings_say(
    measured: Callable[..., driver.ActiveRun],
) -> None:
    def far(files: Json) -> None:
        found = of("scheduler", files)
        found["link"][0]["delay_ms"] = 5000
        found["qdisc_after"][0]["options"]["delay"]["delay"] = 5

    said = "scheduler, egress: delay_ms: requested 50 ms, configured 5000 ms"
    assert spoiled(measured, far) == [said]


def judged(changes: Json, spoil: Callable[[Json], object] = lambda files: None) -> list[str]:
    """The reasons of a trial with these settings, against a baseline without."""
    document = {"title": "", "question": "", "metrics": {"compute_s": None}}
    base, trial = (plan("x", Experiment.model_validate(document | more), SETUP)[0] for more in ({}, changes))
    noise = random.Random(1)
    files = [answers(json.loads(t.to_json()), 1.0, noise) for t in (base, trial)]
    spoil(files[1])
    reference = measured.baseline(base, [Measured.model_validate(files[0]["measured.json"])])
    configured = Configured.model_validate(files[1]["configured.json"])
    delivered = Measured.model_validate(files[1]["measured.json"])
    return verdict.link_reasons(trial, configured, delivered, reference, Tolerances())


CAPPED = {"nics": {"worker-1": {"model": "e1000", "rate_mbit": 1000}}}
IMPAIRED = {
    "links": {
        "worker-1": {
            "delay_ms": 20,
            "jitter_ms": 2,
            "loss_pct": 1,
            "reorder_pct": 25,
            "rate_mbit": 100,
            "direction": "ingress",
            "peer": "worker-2",
        }
    }
}
SHAPED = {"links": {"worker-1": {"rate_mbit": 100}}}
POLICED = {"links": {"worker-1": {"rate_mbit": 100, "policer": True, "direction": "both"}}}


def host(**facts: object) -> Callable[[Json], object]:
    """Another answer of worker-1."""
    return lambda files: of("worker-1", files).update(facts)


def without_policers(files: Json) -> None:
    """A kernel without policers: buckets that have no room to wait in are there as queues."""
    found = of("worker-1", files)
    tbf = {"kind": "tbf", "options": bucket(100, limit=70_000), "drops": 5, "packets": 500}
    found["link"] = [{**each, "by": "tbf"} for each in found["link"]]
    found["qdisc_before"] = found["qdisc_after"] = [tbf, tbf]


def netem(**amounts: object) -> Callable[[Json], object]:
    """Other amounts in worker-1's first queue or policer, as they stay until the runs end."""

    def change(files: Json) -> None:
        found = of("worker-1", files)
        found["link"][0].update(amounts)
        found["qdisc_after"] = [queue(each) for each in found["link"] if not each["policer"]]

    return change


@pytest.mark.parametrize(
    ("asked", "change", "reasons"),
    [
        (IMPAIRED, netem(), []),
        (
            IMPAIRED,
            netem(delay_ms=5000),
            ["worker-1, ingress from worker-2: delay_ms: requested 20 ms, configured 5000 ms"],
        ),
        (
            IMPAIRED,
            netem(jitter_ms=0),
            ["worker-1, ingress from worker-2: jitter_ms: requested 2 ms, configured 0 ms"],
        ),
        (
            IMPAIRED,
            netem(loss_pct=99),
            ["worker-1, ingress from worker-2: loss_pct: requested 1 %, configured 99 %"],
        ),
        (
            IMPAIRED,
            netem(reorder_pct=26),
            ["worker-1, ingress from worker-2: reorder_pct: requested 25 %, configured 26 %"],
        ),
        (
            IMPAIRED,
            netem(rate_mbit=10),
            ["worker-1, ingress from worker-2: rate_mbit: requested 100 Mbit/s, configured 10 Mbit/s"],
        ),
        (
            IMPAIRED,
            netem(direction="egress"),
            [
                "worker-1, ingress from worker-2: requested delay_ms 20 ms, jitter_ms 2 ms, loss_pct 1 %,"
                " reorder_pct 25 %, rate_mbit 100 Mbit/s, nothing is configured",
                "worker-1, egress to worker-2: delay_ms 20 ms, jitter_ms 2 ms, loss_pct 1 %,"
                " reorder_pct 25 %, rate_mbit 100 Mbit/s is configured, but was not requested",
            ],
        ),
        (SHAPED, netem(), []),
        (
            SHAPED,
            netem(rate_mbit=125),
            ["worker-1, egress: rate_mbit: requested 100 Mbit/s, configured 125 Mbit/s"],
        ),
        (POLICED, without_policers, []),
        (
            POLICED,
            netem(rate_mbit=125),
            ["worker-1, egress, policer: rate_mbit: requested 100 Mbit/s, configured 125 Mbit/s"],
        ),
        (
            POLICED,
            lambda files: of("worker-1", files)["link"].pop(),
            [
                "worker-1, ingress, policer: requested rate_mbit 100 Mbit/s, nothing is configured",
            ],
        ),
        (
            {"links": {"worker-1": {"delay_ms": 20, "jitter_ms": 5}}},
            netem(rate_mbit=10_000),  # without a rate netem would let jitter reorder frames as well
            [],
        ),
    ],
)
def test_each_item_that_is_configured_is_compared(
    asked: Json, change: Callable[[Json], object], reasons: list[str]
) -> None:
    found = judged(asked, change)
    assert [reason for reason in found if " to worker-" not in reason.partition(",")[0]] == reasons


def deliver(mbit: float) -> Callable[[Json], object]:
    return lambda files: files["measured.json"]["throughput"][0].update(mbit=mbit)


def test_rates() -> None:
    assert judged(CAPPED) == []
    assert judged(CAPPED, deliver(1033)) == []  # the token bucket's burst over two seconds
    assert judged(CAPPED, deliver(1040)) == [
        "scheduler to worker-1: requested a cap of 1000 Mbit/s, measured 1040.0 Mbit/s"
    ]
    assert judged(CAPPED, deliver(500)) == [
        "scheduler to worker-1: requested a cap of 1000 Mbit/s, measured only 500.0 Mbit/s"
    ]


def test_a_policer_lets_tcp_through_as_it_likes() -> None:
    """Seen for real: 24 to 51 of 100 Mbit/s. More than the cap is still too much."""
    assert judged(POLICED, deliver(24)) == []
    assert judged(POLICED, deliver(150)) == [
        "scheduler to worker-1: requested a cap of 100 Mbit/s, measured 150.0 Mbit/s"
    ]


@pytest.mark.parametrize(
    ("pings", "reason"),
    [
        ([21.0] * 7 + [1.0] * 3, None),
        ([21.0] * 5 + [1.0] * 5, None),  # seen for real: the median of these is no delay of any
        ([21.0] * 1 + [1.0] * 9, "requested 25 % reordering, 9 of 10 pings were sent ahead"),
        ([18.0] * 7 + [1.0] * 3, "requested 20 ms of added delay, measured 17.00 ms (tolerance 1.00 ms)"),
    ],
)
def test_pings_sent_ahead_have_no_delay(pings: list[float], reason: str | None) -> None:
    def ping(files: Json) -> None:
        files["measured.json"]["rtt"][0]["samples_ms"] = pings
        files["measured.json"]["rtt"][1]["samples_ms"] = [21.0] * 8 + [1.0] * 2

    reasons = judged({"links": {"worker-1": {"delay_ms": 20, "reorder_pct": 25}}}, ping)
    assert reasons == ([f"scheduler to worker-1, before the runs: {reason}"] if reason else [])


def test_nic_is_the_one_asked_for() -> None:
    def net(text: str) -> Callable[[Json], object]:
        return host(net=text)

    assert judged(CAPPED, net("rate=119.209,e1000=02:DA:5C:00:00:01,bridge=vmbr1")) == []
    assert judged(CAPPED, host(driver="virtio_net")) == [
        "worker-1: requested NIC e1000, the guest's driver is virtio_net"
    ]
    assert judged(CAPPED, net("e1000=02:DA:5C:00:00:01,bridge=vmbr1,rate=125")) == [
        "worker-1: requested a cap of 1000 Mbit/s, configured 1048.6 Mbit/s"
    ]
    assert judged(CAPPED, net("e1000=02:DA:5C:00:00:01,bridge=vmbr1")) == [
        "worker-1: requested a cap of 1000 Mbit/s, configured no cap"
    ]
    assert judged(CAPPED, net("virtio=02:DA:5C:00:00:01,bridge=vmbr1,rate=119.209")) == [
        "worker-1: requested NIC e1000, configured virtio"
    ]
    assert judged(CAPPED, net("e1000=02:DA:5C:00:00:01,bridge=vmbr0,rate=119.209")) == [
        "worker-1: its NIC is on bridge vmbr0, the lab's is vmbr1"
    ]
    assert judged(CAPPED, host(net=None)) == ["worker-1: the hypervisor did not say what its NIC is"]
    assert judged({}, net("virtio=02:DA:5C:00:00:01,bridge=vmbr1,rate=11.92")) == [
        "worker-1: requested a cap of 0 Mbit/s, configured 100.0 Mbit/s"
    ]


def test_offloads_are_those_of_the_inventory() -> None:
    content = Experiment.model_validate({"title": "", "question": "", "metrics": {"rtt_ms": None}})
    lab = SETUP.model_copy(update={"offloads": {"worker-1": {"tso": False, "gro": True}}})
    trial = plan("x", content, lab)[0]
    files = answers(json.loads(trial.to_json()), 1.0, random.Random(1))
    found = Configured.model_validate(files["configured.json"])
    assert list(differences(trial, found)) == ["worker-1: requested offload gro on, it is unknown"]


@pytest.mark.parametrize(("drops", "valid"), [(500, True), (560, True), (600, False), (0, False)])
def test_loss_lies_in_its_binomial_interval(drops: int, valid: bool) -> None:
    def drop(files: Json) -> None:
        of("worker-1", files)["qdisc_after"][0].update(drops=drops, packets=10_000 - drops)

    reasons = judged({"links": {"worker-1": {"loss_pct": 5}}}, drop)
    assert (reasons == []) is valid, reasons


def test_a_full_queue_before_a_capped_link_is_no_loss() -> None:
    def drop(files: Json) -> None:
        of("worker-1", files)["qdisc_after"][0].update(drops=9, packets=10_000)

    assert judged({"links": {"worker-1": {"rate_mbit": 100}}}, drop) == []
    policed = {"links": {"worker-1": {"rate_mbit": 100, "policer": True, "delay_ms": 5}}}
    assert judged(policed, drop) == [
        "worker-1: netem dropped 9 frames, but no loss was requested (its limit was too small)"
    ]


@pytest.mark.parametrize(("lost", "valid"), [(0, True), (2, True), (8, False)])
def test_lost_pings_lie_in_the_same_interval(lost: int, valid: bool) -> None:
    def lose(files: Json) -> None:
        files["measured.json"]["rtt"][0]["pings"] = 10 + lost
        of("worker-1", files)["qdisc_after"][0].update(drops=250, packets=4750)

    reasons = judged({"links": {"worker-1": {"loss_pct": 5}}}, lose)
    said = "scheduler to worker-1, before the runs: requested 5 % loss, 8 of 18 pings were lost"
    assert reasons == ([] if valid else [said])


def test_an_answer_that_came_twice_does_not_end_the_judgement() -> None:
    def twice(files: Json) -> None:
        files["measured.json"]["rtt"][0]["samples_ms"] += [1.0]

    assert judged({}, twice) == []


def test_super_packets_are_not_counted_as_frames() -> None:
    def large(files: Json) -> None:
        of("worker-1", files)["offloads"] = {"tso": True}
        of("worker-1", files)["qdisc_after"][0].update(drops=10, packets=10_000)

    assert judged({"links": {"worker-1": {"loss_pct": 5}}}, large) == []


def machine(seconds: float = 100.0, **tcp: float) -> Json:
    nothing = {
        "cpu": {},
        "softnet_dropped": 0,
        "lab_statistics": {},
        "versions": {},
        "congestion_control": "",
    }
    told = {
        "kernel": "",
        "os": "",
        "virtualization": "",
        "cpus": 1,
        "memory_mb": 1,
        "clock_ahead_at_most_s": 0,
    }
    return {**nothing, **told, "seconds": seconds, "tcp": tcp}


def test_a_clock_of_another_speed_is_noticed() -> None:
    """Seen for real: a guest restarted on a busy host took its counter for 5.4 times as fast as it was."""
    seconds = {"client": 119.0, "scheduler": 119.1, "worker-1": 644.2, "worker-2": 118.5}
    hosts = {host: machine(taken) for host, taken in seconds.items()}
    node = {"name": "pve", "accel": "tcg"}
    found = list(node.clocks(Hosts.model_validate({"hosts": hosts, "hypervisor": node})))
    assert found == ["worker-1: its clock ran at x 5.41 the speed of the others"]
    assert list(node.clocks(Hosts.model_validate({"hypervisor": node}))) == []


def test_delay_counts_each_way_it_is_passed() -> None:
    links = {
        "scheduler": {"delay_ms": 5, "direction": "both"},
        "worker-1": {"delay_ms": 2, "peer": "worker-2"},
    }
    document = {"title": "", "question": "", "metrics": {"compute_s": None}, "links": links}
    trial = plan("x", Experiment.model_validate(document), SETUP)[0]
    assert routes.added_delay_ms(trial, "worker-1", "scheduler") == 10
    assert routes.added_delay_ms(trial, "worker-2", "worker-1") == 2
    assert routes.added_delay_ms(trial, "worker-2", "worker-3") == 0


def test_table_has_a_row_per_sample(measured: Callable[..., driver.ActiveRun]) -> None:
    run = measured(FakeLab(sloped))
    frame = load(run.directory)
    assert frame.attrs["factors"] == ["delay_ms"]
    assert (frame.metric == "compute_s").sum() == 8 * 6
    assert (frame.metric == "rtt_ms").sum() == 8 * 20
    assert list(frame.cell.unique()) == ["delay_ms=0", "delay_ms=50", "delay_ms=200"]
    under_load = frame[frame.metric == "rtt_loaded_ms"]
    assert len(under_load) == 8 * 2 * 3 and set(under_load.dst) == {"worker-1"}
    written = load(run.directory / "samples.parquet")
    pd.testing.assert_frame_equal(frame, written, check_dtype=False)


def test_loss_as_drop_events_and_as_segments(tmp_path: Path) -> None:
    """One event took a super-packet of many segments: netem's count and TCP's differ, both are told."""
    link = {"interface": "eth1", "driver": "", "mtu": 1500, "offloads": {}, "congestion_control": "cubic"}
    looks = {f"qdisc_{when}": [{"kind": "netem", "drops": n}] for when, n in (("before", 3), ("after", 10))}
    clear = {"qdisc_before": [{"kind": "pfifo_fast", "drops": 1}]}
    hosts = {"worker-1": link | looks, "worker-2": link | clear}
    store.write(tmp_path, Configured.model_validate({"hosts": hosts}))
    tcp = [{"OutSegs": 900, "RetransSegs": 45}, {"OutSegs": 100, "RetransSegs": 5}]
    machines = {f"worker-{i}": machine(**counted) for i, counted in enumerate(tcp, 1)}
    node = {"name": "pve", "accel": "tcg"}
    store.write(tmp_path, Hosts.model_validate({"hosts": machines, "hypervisor": node}))
    found = {sample["metric"]: sample["value"] for sample in samples(tmp_path)}
    assert found == {"drop_events": 7, "retransmitted_pct": 5.0}


def test_probes_of_links_that_no_trial_changes_leave_the_statistics(
    measured: Callable[..., driver.ActiveRun],
) -> None:
    """The median over touched and untouched links would be that of neither."""
    run = measured(FakeLab(sloped))
    for path in run.directory.glob("*/measured.json"):
        delivered = json.loads(path.read_text())
        other = {"src": "worker-2", "dst": "worker-3", "samples_ms": [0.1], "pings": 1}
        delivered["rtt"].append(delivered["rtt"][0] | other)
        path.write_text(json.dumps(delivered))
    frame = load(run.directory)
    untouched = frame[(frame.src == "worker-2") & (frame.metric == "rtt_ms")]
    assert len(untouched) and not untouched.tested.any()
    found = answer(frame, "rtt_ms", ["delay_ms"])
    assert found is not None and found.cells[0].lowest > 0.1


def test_each_row_says_on_which_nodes_its_ends_are(measured: Callable[..., driver.ActiveRun]) -> None:
    places = {"scheduler": "pve", "worker-1": "pve2", "worker-2": "pve"}

    def placed(trial: Json, files: Json) -> int:
        for host, node in places.items():
            of(host, files)["node"] = node
        near = files["measured.json"]["rtt"][0] | {"dst": "worker-2", "samples_ms": [0.5] * 10}
        files["measured.json"]["rtt"].append(near)
        return 0

    frame = load(measured(FakeLab(spoil=placed)).directory)
    ways = frame[frame.metric == "rtt_ms"].groupby("dst").node.unique()
    assert (list(ways["worker-1"]), list(ways["worker-2"])) == (["pve pve2"], ["pve"])
    assert set(frame[frame.metric == "compute_s"].node) == {"pve pve2"}
    found = by_node(frame, "rtt_ms")
    assert {node: n for node, (n, _) in found.items()} == {"pve": 20, "pve pve2": 40}
    assert found["pve"][1].value == 0.5 and found["pve pve2"][1].value == pytest.approx(1.0, rel=0.01)


def test_of_a_lab_on_one_node_there_is_nothing_to_set_apart(
    measured: Callable[..., driver.ActiveRun],
) -> None:
    frame = load(measured(FakeLab()).directory)
    assert set(frame.node) == {""} and by_node(frame, "rtt_ms") == {}


def told(folder: Path, name: str, factor: str, *pairs: tuple[str, str]) -> dict[str, set[str]]:
    """Run an experiment whose trials ping between these pairs: by cell, who was pinged where it is told."""
    run = driver.start(folder, *experiment.load(name, quick=True), SETUP, quick=True)
    driver.execute(run, FakeLab(lambda trial: 4.0), lambda trial, state: None)
    for path in run.directory.glob("*/measured.json"):
        delivered = json.loads(path.read_text())
        delivered["rtt"] = [delivered["rtt"][0] | {"src": src, "dst": dst} for src, dst in pairs]
        path.write_text(json.dumps(delivered))
    rtt = load(run.directory).query("metric == 'rtt_ms' and tested")
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


def test_slope_and_verdicts(measured: Callable[..., driver.ActiveRun]) -> None:
    frame = load(measured(FakeLab(sloped)).directory)
    found = answer(frame, "compute_s", ["delay_ms"])
    assert found is not None and found.null is not None
    assert [cell.shown for cell in found.cells] == [False, True, True]
    assert found.cells[2].ratio.value == pytest.approx(2, rel=0.02)
    assert found.slopes["delay_ms"].low < 0.02 < found.slopes["delay_ms"].high
    assert found.null.low < 0 < found.null.high


def two_kinds() -> pd.DataFrame:
    """Three samples of each cell; capped, the one work takes twice as long, the other half as long again."""
    took = {("merge", 0): 1.0, ("merge", 50): 2.0, ("groupby", 0): 10.0, ("groupby", 50): 15.0}
    rows = [
        (block, work, rate, work == "merge" and not rate, null, value * jitter * shift)
        for (work, rate), value in took.items()
        for block, shift in ((1, 1.0), (2, 1.003 if rate else 0.997), (3, 1.001))
        for jitter in (0.99, 1.0, 1.01)
        for null in ((False, True) if (work, rate) == ("merge", 0) else (False,))
    ]
    frame = pd.DataFrame(rows, columns=["block", "workload", "rate_mbit", "baseline", "null", "value"])
    frame.loc[frame.null, "value"] += 0.05
    frame["baseline"] &= ~frame.null
    cell = "work=" + frame.workload + ",rate_mbit=" + frame.rate_mbit.astype(str)
    same = {"metric": "compute_s", "warmup": False, "status": "ok", "tested": True, "prediction_error": 0.0}
    return frame.assign(work=frame.workload, cell=cell, src="", dst="", **same)


def test_like_is_compared_with_like() -> None:
    found = answer(two_kinds(), "compute_s", ["work", "rate_mbit"])
    assert found is not None and found.kinds == ("work",)
    by_cell = {cell.name: (cell.baseline, cell.ratio.value, cell.shown) for cell in found.cells}
    assert by_cell == {
        "work=merge,rate_mbit=0": (True, 1.0, False),
        "work=merge,rate_mbit=50": (False, pytest.approx(2.0, rel=0.03), True),
        "work=groupby,rate_mbit=0": (True, 1.0, False),
        "work=groupby,rate_mbit=50": (False, pytest.approx(1.5, rel=0.01), True),
    }
    assert found.baseline(found.cells[3]) is found.cells[2]
    told = sentences.sentence(found)
    assert "With work groupby and 50 Mbit/s of rate" in told and "times its own baseline's" in told


def test_noise_is_as_large_a_share_of_another_kinds_baseline() -> None:
    frame = two_kinds()
    frame.loc[frame.null, "value"] *= frame.block.map({1: 1.1, 2: 0.9, 3: 1.0})[frame.null]
    slow = frame.cell == "work=groupby,rate_mbit=50"
    frame.loc[slow, "value"] *= 10.5 / 15  # 5 %, of which the null trial's 10 % are noise
    found = answer(frame, "compute_s", ["work", "rate_mbit"])
    assert found is not None and not found.cells[3].shown


def test_a_kind_without_a_baseline_is_compared_with_nothing() -> None:
    frame = two_kinds()
    found = answer(frame[frame.cell != "work=groupby,rate_mbit=0"], "compute_s", ["work", "rate_mbit"])
    assert found is not None
    alone = found.cells[2]
    assert (
        math.isnan(alone.ratio.value)
        and not alone.shown
        and alone.median.value == pytest.approx(15.0, rel=0.01)
    )


def test_no_difference_is_not_shown(measured: Callable[..., driver.ActiveRun]) -> None:
    found = answer(load(measured(FakeLab()).directory), "compute_s", ["delay_ms"])
    assert found is not None and not any(cell.shown for cell in found.cells)


def test_invalid_trials_leave_the_statistics(measured: Callable[..., driver.ActiveRun]) -> None:
    def break_link(trial: Json, files: Json) -> int:
        if trial["cell"] == "delay_ms=200":
            files["measured.json"]["rtt"][0]["samples_ms"] = [1.0] * 10
        return 0

    found = answer(load(measured(FakeLab(spoil=break_link)).directory), "compute_s", ["delay_ms"])
    assert found is not None and [cell.name for cell in found.cells] == ["delay_ms=0", "delay_ms=50"]


@settings(max_examples=20, deadline=None)
@example([33.66227779186736] * 2)
@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=20))
def test_interval_holds_the_estimate(values: list[float]) -> None:
    found = typical(samples_of_trials(values))
    assert found.low <= found.value <= found.high


def samples_of_trials(values: list[float], **same: object) -> pd.DataFrame:
    """A sample per trial, each in a block of its own."""
    place: Json = {"run": "r", "cell": "x", "null": False, "src": "", "dst": ""}
    return pd.DataFrame({"value": values, "block": range(len(values))}).assign(**place | same)


def test_slope_of_a_line() -> None:
    x = np.repeat([0.0, 1, 2, 3], 3)
    assert slope(x, 1 + 3 * x).value == pytest.approx(3)


def test_one_trial_has_no_interval_however_many_runs_it_has() -> None:
    """Runs of one trial share its cluster, placement and minute: they say nothing of the next trial."""
    found = typical(samples_of_trials([1.0, 1.1, 0.9, 1.0, 1.05]).assign(block=1))
    assert found.value == 1.0 and np.isnan(found.low) and not found.excludes(0)


def test_compare_refuses_what_differs(measured: Callable[..., driver.ActiveRun]) -> None:
    def kvm(trial: Json, files: Json) -> int:
        files["hosts.json"]["hypervisor"]["accel"] = "kvm"
        return 0

    def bbr(trial: Json, files: Json) -> int:
        files["configured.json"]["hosts"]["worker-1"]["congestion_control"] = "bbr"
        return 0

    old, same, other, mixed = (measured(FakeLab(sloped, spoil), f"x{i}").directory
                        for i, spoil in enumerate((lambda t, f: 0, lambda t, f: 0, kvm, bbr)))  # fmt: skip
    changes = {(c.metric, c.cell): c for c in compare.compare(old, same)}
    assert changes["compute_s", "delay_ms=50"].ratio.value == pytest.approx(1, rel=0.05)
    with pytest.raises(LabError, match="not comparable: accelerator tcg and kvm"):
        compare.compare(old, other)
    with pytest.raises(LabError, match="not comparable: congestion control cubic and bbr, cubic"):
        compare.compare(old, mixed)
    assert compare.compare(old, other, anyway=True)


def test_files_of_another_schema_are_refused(tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text('{"schema": 1}')
    with pytest.raises(LabError, match="schema 1, this version of the lab reads 3 and 2"):
        store.read(Measured, tmp_path)
    (tmp_path / "measured.json").write_text('{"schema": 3, "rtts": []}')
    with pytest.raises(LabError, match=r"measured\.json: rtts: unknown key; allowed: .*rtt"):
        store.read(Measured, tmp_path)
    with pytest.raises(LabError, match="no results here"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("new", "ratio", "told"),
    [
        (2.1, Interval(1.05, 0.9, 1.2), "within what chance does"),
        (3.0, Interval(1.5, 1.2, 1.8), "more than chance does"),
        (3.0, Interval(1.5), "too few blocks to tell what chance does"),
        (2.0, Interval(1.0), "the same"),
    ],
)
def test_what_chance_may_have_done_between_two_runs(new: float, ratio: Interval, told: str) -> None:
    assert (
        reproduction.chance(compare.CellChange("compute_s", "x=1", 2.0, new, ratio, shown=ratio.low > 1))
        == told
    )
