"""What probes measured is compared with the request and with the baseline."""

from __future__ import annotations

import pytest

from tests.unit.dasklab.conftest import Json
from tests.unit.dasklab.results.trials import Change, host, link_reasons

CAPPED = {"nics": {"worker-1": {"rate_mbit": 1000}}}
POLICED = {"links": {"worker-1": {"rate_mbit": 100, "policer": True, "direction": "both"}}}
DELAYED = {"links": {"scheduler": {"delay_ms": 50}}}
WAY = "scheduler to worker-1"


def set_pings(samples_ms: list[float], probe: int = 0, **facts: int) -> Change:
    return lambda files: files["measured.json"]["rtt"][probe].update(samples_ms=samples_ms, **facts)


def set_throughput(mbit: float) -> Change:
    return lambda files: files["measured.json"]["throughput"][0].update(mbit=mbit)


def test_added_delay_must_match_the_request() -> None:
    assert link_reasons(**DELAYED) == []
    assert link_reasons(set_pings([41.0] * 10, probe=1), **DELAYED) == [
        f"{WAY}, after the repeats: requested 50 ms of added delay, measured 40.00 ms (tolerance 2.50 ms)"
    ]


def test_delay_x_100_is_reported_where_it_is_configured_although_pings_are_right() -> None:
    def set_delay(files: Json) -> None:
        scheduler = host(files, "scheduler")
        scheduler["link"][0]["delay_ms"] = 5000
        scheduler["qdisc_after"][0]["options"]["delay"]["delay"] = 5

    assert link_reasons(set_delay, **DELAYED) == [
        "scheduler, egress: delay_ms: requested 50 ms, configured 5000 ms"
    ]


@pytest.mark.parametrize(
    ("samples_ms", "reason"),
    [
        ([21.0] * 7 + [1.0] * 3, None),
        ([21.0] * 5 + [1.0] * 5, None),  # measured on a real link: the median of these is no ping's delay
        ([21.0] * 1 + [1.0] * 9, "requested 25 % reordering, 9 of 10 pings were sent ahead"),
        (
            [18.0] * 7 + [1.0] * 3,
            "requested 20 ms of added delay, measured 17.00 ms (tolerance 1.00 ms)",
        ),
    ],
)
def test_pings_sent_ahead_have_no_delay(samples_ms: list[float], reason: str | None) -> None:
    def ping(files: Json) -> None:
        set_pings(samples_ms)(files)
        set_pings([21.0] * 8 + [1.0] * 2, probe=1)(files)

    reasons = link_reasons(ping, links={"worker-1": {"delay_ms": 20, "reorder_pct": 25}})
    assert reasons == ([f"{WAY}, before the repeats: {reason}"] if reason else [])


def test_no_ping_is_lost_on_a_link_without_loss() -> None:
    assert link_reasons(set_pings([])) == [
        f"{WAY}, before the repeats: requested 0 % loss, 10 of 10 pings were lost"
    ]


@pytest.mark.parametrize(("lost", "valid"), [(0, True), (2, True), (8, False)])
def test_lost_pings_lie_in_the_binomial_interval(lost: int, valid: bool) -> None:
    def lose(files: Json) -> None:
        files["measured.json"]["rtt"][0]["pings"] = 10 + lost
        host(files, "worker-1")["qdisc_after"][0].update(drops=250, packets=4750)

    reasons = link_reasons(lose, links={"worker-1": {"loss_pct": 5}})
    assert reasons == (
        [] if valid else [f"{WAY}, before the repeats: requested 5 % loss, 8 of 18 pings were lost"]
    )


def test_ping_that_was_answered_twice_is_no_loss() -> None:
    def answer_twice(files: Json) -> None:
        files["measured.json"]["rtt"][0]["samples_ms"] += [1.0]

    assert link_reasons(answer_twice) == []


def test_throughput_must_match_the_cap() -> None:
    assert link_reasons(**CAPPED) == []
    assert link_reasons(set_throughput(1033), **CAPPED) == []  # the token bucket's burst over two seconds
    assert link_reasons(set_throughput(1040), **CAPPED) == [
        f"{WAY}: requested a cap of 1000 Mbit/s, measured 1040.0 Mbit/s"
    ]
    assert link_reasons(set_throughput(500), **CAPPED) == [
        f"{WAY}: requested a cap of 1000 Mbit/s, measured only 500.0 Mbit/s"
    ]


def test_tcp_need_not_fill_a_policed_link() -> None:
    """Real policers gave 24 to 51 of 100 Mbit/s. More than the cap is still too much."""
    assert link_reasons(set_throughput(24), **POLICED) == []
    assert link_reasons(set_throughput(150), **POLICED) == [
        f"{WAY}: requested a cap of 100 Mbit/s, measured 150.0 Mbit/s"
    ]
