"""netem's drop counters: loss as requested, and no other drops."""

from __future__ import annotations

import pytest

from tests.unit.dasklab.conftest import Json
from tests.unit.dasklab.results.trials import Change, host, link_reasons

LOSSY = {"links": {"worker-1": {"loss_pct": 5}}}


def set_drops(drops: int, packets: int = 10_000) -> Change:
    return lambda files: host(files, "worker-1")["qdisc_after"][0].update(drops=drops, packets=packets)


def test_drops_without_requested_loss_are_reported() -> None:
    assert link_reasons(set_drops(7), links={"worker-1": {"delay_ms": 5}}) == [
        "worker-1: netem dropped 7 frames, but no loss was requested (its limit was too small)"
    ]


@pytest.mark.parametrize(("drops", "valid"), [(500, True), (560, True), (600, False), (0, False)])
def test_loss_lies_in_its_binomial_interval(drops: int, valid: bool) -> None:
    reasons = link_reasons(set_drops(drops, 10_000 - drops), **LOSSY)
    share = drops / 100
    line = f"worker-1: requested 5 % loss, netem dropped {share:.2f} % of 10000 frames"
    assert reasons == ([] if valid else [line])


def test_full_queue_before_a_capped_link_is_no_loss() -> None:
    assert link_reasons(set_drops(9), links={"worker-1": {"rate_mbit": 100}}) == []


def test_policer_does_not_excuse_drops_in_netem() -> None:
    policed = {"rate_mbit": 100, "policer": True, "delay_ms": 5}
    assert link_reasons(set_drops(9), links={"worker-1": policed}) == [
        "worker-1: netem dropped 9 frames, but no loss was requested (its limit was too small)"
    ]


def test_super_packets_are_not_counted_as_frames() -> None:
    def enable_offload(files: Json) -> None:
        host(files, "worker-1")["offloads"] = {"tso": True}
        set_drops(10)(files)

    assert link_reasons(enable_offload, **LOSSY) == []
