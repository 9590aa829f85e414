"""A capture: every frame in one tier, and no claim that nothing was lost where nobody counted."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab_guest import capture

LOG = (
    "tcpdump: listening on eth2\n9492 packets captured\n9500 packets received by filter\n"
    "8 packets dropped by kernel\n"
)


def test_every_frame_is_in_one_tier_and_the_schedulers_are_whole() -> None:
    whole, cut = capture.tiers("10.77.1.12", 512)
    assert cut["filter"] == f"not {whole['filter']}"
    assert whole["snaplen_bytes"] > 65535 > cut["snaplen_bytes"] == 512


def test_tcpdump_ends_after_its_time_and_at_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    units: list[tuple[Any, ...]] = []
    monkeypatch.setattr(capture, "start_unit", lambda name, argv, **more: units.append((name, argv, more)))
    capture.start_tier(capture.tiers("10.77.1.12", 512)[1], "eth2", 600, 32, 100)
    [(name, argv, properties)] = units
    assert name == "dasklab-capture-others.service"
    assert argv[:6] == ["tcpdump", "-n", "-Z", "root", "-i", "eth2"]
    assert properties["RuntimeMaxSec"] == 600
    assert properties["LimitFSIZE"] == 100_000_000
    assert properties["TimeoutStopSec"] <= 20


def test_counters_of_tcpdump() -> None:
    assert capture.parse_counters(LOG) == {
        "frames": 9492,
        "received": 9500,
        "dropped_kernel": 8,
        "dropped_interface": 0,
    }
    assert capture.parse_counters(LOG + "3 packets dropped by interface\n")["dropped_interface"] == 3
    assert capture.parse_counters("1 packet captured")["frames"] == 1
    assert (
        capture.parse_counters(f"7 packets captured\n{LOG}")["frames"] == 9492
    )  # printed before, on SIGUSR1


def test_frames_that_tcpdump_did_not_write() -> None:
    log = "{} packets captured\n9500 packets received by filter\n8 packets dropped by kernel\n"
    assert capture.left_behind(capture.parse_counters(log.format(9492))) == 0
    assert capture.left_behind(capture.parse_counters(log.format(9400))) == 92
    assert capture.left_behind(capture.parse_counters("tcpdump: listening on eth2")) is None
    assert capture.left_behind(capture.parse_counters("9492 packets captured\n")) is None


def test_killed_capture_does_not_claim_that_nothing_was_lost() -> None:
    logs = ("tcpdump: listening on eth2", "5 packets captured")
    parts = [capture.parse_counters(log) for log in logs]
    assert parts[0]["frames"] is None
    assert capture.total(parts, "frames") is None
