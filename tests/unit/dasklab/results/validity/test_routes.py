"""What impairments do to a round trip between two hosts."""

from __future__ import annotations

import pytest
from dasklab.results.validity import routes

from tests.unit.dasklab.results.trials import trial

LINKS = {
    "scheduler": {"delay_ms": 5, "direction": "both"},
    "worker-1": {"delay_ms": 2, "peer": "worker-2"},
}


@pytest.mark.parametrize(
    ("src", "dst", "delay_ms"),
    [("worker-1", "scheduler", 10), ("worker-2", "worker-1", 2), ("worker-2", "worker-3", 0)],
)
def test_delay_counts_once_for_each_direction(src: str, dst: str, delay_ms: float) -> None:
    assert routes.added_delay_ms(trial(links=LINKS), src, dst) == delay_ms


def test_round_trip_is_lost_if_either_way_is() -> None:
    lossy = trial(links={"scheduler": {"loss_pct": 10}, "worker-1": {"loss_pct": 20}})
    assert routes.lost_share(lossy, "scheduler", "worker-1") == pytest.approx(1 - 0.9 * 0.8)
    assert routes.lost_share(lossy, "worker-2", "worker-3") == 0


def test_lowest_cap_on_the_way_counts() -> None:
    capped = trial(
        nics={"scheduler": {"rate_mbit": 1000}, "worker-1": {"rate_mbit": 500}},
        links={"worker-1": {"rate_mbit": 100, "direction": "ingress"}},
    )
    assert routes.cap_mbit(capped, "scheduler", "worker-1") == 100
    assert routes.cap_mbit(capped, "worker-1", "scheduler") == 500
    assert routes.cap_mbit(capped, "worker-2", "worker-3") == 0
