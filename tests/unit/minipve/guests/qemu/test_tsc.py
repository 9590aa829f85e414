"""The frequency of the time stamp counter."""

from __future__ import annotations

import platform

import pytest
from minipve.guests.qemu import power


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 has a time stamp counter")
def test_two_measurements_agree() -> None:
    first = power.tsc_khz()
    power.tsc_khz.cache_clear()
    again = power.tsc_khz()
    assert first is not None
    assert again is not None
    assert first == pytest.approx(again, rel=0.005)  # the kernel refuses a refinement beyond 1 %
    assert 500_000 < first < 10_000_000


def test_no_frequency_on_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    power.tsc_khz.cache_clear()
    assert power.tsc_khz() is None
    power.tsc_khz.cache_clear()
