from __future__ import annotations

import platform

import pytest
from minipve.qemu import tsc


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 has this counter")
def test_the_same_frequency_is_measured_twice() -> None:
    first = tsc.khz()
    tsc.khz.cache_clear()
    again = tsc.khz()
    assert first is not None
    assert again is not None
    assert first == pytest.approx(again, rel=0.005)  # the kernel refuses a refinement beyond 1 %
    assert 500_000 < first < 10_000_000


def test_another_processor_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    tsc.khz.cache_clear()
    assert tsc.khz() is None
    tsc.khz.cache_clear()
