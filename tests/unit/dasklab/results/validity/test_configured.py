"""What is configured is compared with the request, item by item."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.model.files import Configured
from dasklab.model.settings.impairments import IMPAIRMENTS, Impairment
from dasklab.results.validity.configured import differences

from tests.unit.dasklab.conftest import SETUP, Json, bucket, queue
from tests.unit.dasklab.results.trials import Change, files_of, host, trial

CAPPED = {"nics": {"worker-1": {"model": "e1000", "rate_mbit": 1000}}}
AMOUNT = {"ms": 20, "pct": 5, "mbit": 100}  # by unit
EVERYTHING = {impairment.key: AMOUNT[impairment.key.rpartition("_")[2]] for impairment in IMPAIRMENTS}
FROM_PEER = {"links": {"worker-1": EVERYTHING | {"direction": "ingress", "peer": "worker-2"}}}
SHAPED = {"links": {"worker-1": {"rate_mbit": 100}}}
POLICED = {"links": {"worker-1": {"rate_mbit": 100, "policer": True, "direction": "both"}}}


def reasons(change: Change = lambda files: None, **settings: Any) -> list[str]:
    """Return the differences of a trial with these settings, after a change of its files."""
    requested = trial(**settings)
    files = files_of(requested)
    change(files)
    return list(differences(requested, Configured.model_validate(files["configured.json"])))


def set_amounts(**amounts: object) -> Change:
    """Change worker-1's first queue or policer, before and after the repeats."""

    def change(files: Json) -> None:
        worker = host(files, "worker-1")
        worker["link"][0].update(amounts)
        worker["qdisc_after"] = [queue(part) for part in worker["link"] if not part["policer"]]

    return change


def set_facts(**facts: object) -> Change:
    """Change what is read back of worker-1."""
    return lambda files: host(files, "worker-1").update(facts)


def set_net(text: str) -> Change:
    return set_facts(net=text)


def words(amounts: dict[str, int]) -> str:
    return ", ".join(f"{row.key} {amounts[row.key]} {row.unit.sign}" for row in IMPAIRMENTS)


@pytest.mark.parametrize("settings", [{}, CAPPED, FROM_PEER, SHAPED, POLICED])
def test_configuration_as_requested_has_no_differences(settings: Json) -> None:
    assert reasons(**settings) == []


@pytest.mark.parametrize("impairment", IMPAIRMENTS, ids=lambda impairment: impairment.key)
@pytest.mark.parametrize("factor", [0, 0.5, 1.01])
def test_configured_amount_must_match_the_request(impairment: Impairment, factor: float) -> None:
    amount = EVERYTHING[impairment.key]
    sign = impairment.unit.sign
    assert reasons(set_amounts(**{impairment.key: factor * amount}), **FROM_PEER) == [
        f"worker-1, ingress from worker-2: {impairment.key}:"
        f" requested {amount} {sign}, configured {factor * amount:g} {sign}"
    ]


def test_rounding_is_tolerated() -> None:
    rounded = {key: amount * 1.0005 for key, amount in EVERYTHING.items()}
    assert reasons(set_amounts(**rounded), **FROM_PEER) == []


def test_impairment_of_the_wrong_direction_is_one_too_few_and_one_too_many() -> None:
    assert reasons(set_amounts(direction="egress"), **FROM_PEER) == [
        f"worker-1, ingress from worker-2: requested {words(EVERYTHING)}, nothing is configured",
        f"worker-1, egress to worker-2: {words(EVERYTHING)} is configured, but was not requested",
    ]


def test_rate_of_a_shaper_must_match_the_request() -> None:
    assert reasons(set_amounts(rate_mbit=125), **SHAPED) == [
        "worker-1, egress: rate_mbit: requested 100 Mbit/s, configured 125 Mbit/s"
    ]


def test_rate_of_a_policer_must_match_the_request() -> None:
    assert reasons(set_amounts(rate_mbit=125), **POLICED) == [
        "worker-1, egress, policer: rate_mbit: requested 100 Mbit/s, configured 125 Mbit/s"
    ]


def test_missing_policer_is_reported() -> None:
    assert reasons(lambda files: host(files, "worker-1")["link"].pop(), **POLICED) == [
        "worker-1, ingress, policer: requested rate_mbit 100 Mbit/s, nothing is configured"
    ]


def test_bucket_without_a_queue_counts_as_a_policer() -> None:
    """A kernel without policers uses one."""

    def without_policers(files: Json) -> None:
        worker = host(files, "worker-1")
        tbf = {"kind": "tbf", "options": bucket(100, limit=70_000), "drops": 5, "packets": 500}
        worker["link"] = [{**part, "by": "tbf"} for part in worker["link"]]
        worker["qdisc_before"] = worker["qdisc_after"] = [tbf, tbf]

    assert reasons(without_policers, **POLICED) == []


def test_jitter_without_reordering_has_the_line_rate() -> None:
    """Without a rate netem would reorder frames that have jitter."""
    settings = {"links": {"worker-1": {"delay_ms": 20, "jitter_ms": 5}}}
    assert reasons(set_amounts(rate_mbit=10_000), **settings) == []
    assert reasons(set_amounts(rate_mbit=0), **settings) == [
        "worker-1, egress: rate_mbit: requested 10000 Mbit/s, configured 0 Mbit/s"
    ]


def test_impairment_must_last_until_the_runs_end() -> None:
    def disappear(files: Json) -> None:
        host(files, "worker-1")["qdisc_after"] = []

    assert reasons(disappear, **SHAPED) == ["worker-1: the impairment was gone when the repeats ended"]


def test_impairment_must_not_appear_during_the_runs() -> None:
    def appear(files: Json) -> None:
        host(files, "worker-2")["qdisc_after"] = host(files, "worker-1")["qdisc_after"]

    assert reasons(appear, **SHAPED) == [
        "worker-2: the impairment was another one when the repeats ended: rate_mbit 100 Mbit/s"
    ]


def test_host_that_was_not_read_back_is_reported() -> None:
    def remove(files: Json) -> None:
        files["configured.json"]["hosts"].pop("worker-3")

    assert reasons(remove) == ["worker-3: its link was not read back"]


def test_bridge_mode_must_match_the_request() -> None:
    def flood(files: Json) -> None:
        files["configured.json"]["bridge"].update(ageing_s=0)

    assert reasons(flood) == ["bridge: requested learning, but its ageing time is 0 s"]
    assert reasons(flood, bridge="flooding") == []


def test_driver_must_be_one_of_the_requested_model() -> None:
    assert reasons(set_facts(driver="virtio_net"), **CAPPED) == [
        "worker-1: requested NIC e1000, the guest's driver is virtio_net"
    ]


def test_nic_must_match_the_request() -> None:
    assert reasons(set_net("rate=119.209,e1000=02:DA:5C:00:00:01,bridge=vmbr1"), **CAPPED) == []
    assert reasons(set_net("virtio=02:DA:5C:00:00:01,bridge=vmbr1,rate=119.209"), **CAPPED) == [
        "worker-1: requested NIC e1000, configured virtio"
    ]
    assert reasons(set_net("e1000=02:DA:5C:00:00:01,bridge=vmbr0,rate=119.209"), **CAPPED) == [
        "worker-1: its NIC is on bridge vmbr0, the lab's is vmbr1"
    ]
    assert reasons(set_facts(net=None), **CAPPED) == ["worker-1: the hypervisor did not report its NIC"]


def test_configured_cap_must_match_the_request() -> None:
    assert reasons(set_net("e1000=02:DA:5C:00:00:01,bridge=vmbr1,rate=125"), **CAPPED) == [
        "worker-1: requested a cap of 1000 Mbit/s, configured 1048.6 Mbit/s"
    ]
    assert reasons(set_net("e1000=02:DA:5C:00:00:01,bridge=vmbr1"), **CAPPED) == [
        "worker-1: requested a cap of 1000 Mbit/s, configured no cap"
    ]
    assert reasons(set_net("virtio=02:DA:5C:00:00:01,bridge=vmbr1,rate=11.92")) == [
        "worker-1: requested a cap of 0 Mbit/s, configured 100.0 Mbit/s"
    ]


def test_offloads_must_be_those_of_the_inventory() -> None:
    lab = SETUP.model_copy(update={"offloads": {"worker-1": {"tso": False, "gro": True}}})
    requested = trial(lab)
    configured = Configured.model_validate(files_of(requested)["configured.json"])
    assert list(differences(requested, configured)) == ["worker-1: requested offload gro on, it is unknown"]
