"""The frequency of the time stamp counter."""

from __future__ import annotations

import platform

import pytest
from minipve.guests.qemu import tsc


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 has a time stamp counter")
def test_two_measurements_agree() -> None:
    first = tsc.khz()
    tsc.khz.cache_clear()
    again = tsc.khz()
    assert first is not None
    assert again is not None
    assert first == pytest.approx(again, rel=0.005)  # the kernel refuses a refinement beyond 1 %
    assert 500_000 < first < 10_000_000


def test_no_frequency_on_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    tsc.khz.cache_clear()
    assert tsc.khz() is None
    tsc.khz.cache_clear()
