"""Rates between two samples of a host."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dasklab.machines.live import Watched, rates


def sample(time_s: float, **changes: float) -> dict[str, Any]:
    values = {"idle_s": 0, "user_s": 0, "tx_bytes": 0, "rx_bytes": 0, "RetransSegs": 0, **changes}
    return {
        "time": time_s,
        "cpu": {"user_s": values["user_s"], "idle_s": values["idle_s"], "iowait_s": 0, "steal_s": 0},
        "memory_used": 0.25,
        "tcp": {"RetransSegs": values["RetransSegs"]},
        "lab": {
            "rx_bytes": values["rx_bytes"],
            "tx_bytes": values["tx_bytes"],
            "rx_dropped": 3,
            "tx_dropped": 0,
        },
        "links": [{"rate_mbit": 50}],
    }


def test_no_host_uses_more_than_its_processors_when_a_counter_goes_back() -> None:
    found = rates(sample(10), sample(12, user_s=2, idle_s=-0.01))
    assert found is not None and found.cpu == 1


def test_rates_are_per_second_and_in_mbit() -> None:
    after = sample(12, user_s=3, idle_s=1, tx_bytes=12_500_000, rx_bytes=125_000, RetransSegs=8)
    found = rates(sample(10), after)
    assert found is not None
    assert (found.cpu, found.memory) == (0.75, 0.25)
    assert (found.sent_mbit, found.received_mbit) == pytest.approx((50, 0.5))
    assert (found.retransmitted, found.dropped) == (4, 0)
    assert found.links == [{"rate_mbit": 50}]


def test_there_are_no_rates_over_a_restart_or_no_time() -> None:
    before = sample(10, user_s=50, tx_bytes=10_000)
    assert rates(before, sample(12, user_s=52, tx_bytes=10)) is None
    assert rates(before, before) is None


def test_host_that_ends_keeps_its_last_words() -> None:
    watched = Watched(["a", "b"])
    watched.read("a", map(json.dumps, [sample(1), sample(2, user_s=1)]), lambda: "connection closed")
    assert watched.problems == {"a": "connection closed"}
    assert watched.rates["a"] and watched.rates["a"].cpu == 1
    assert watched.rates["b"] is None
