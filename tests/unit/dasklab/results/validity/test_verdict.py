"""The verdict on the trials of a run, from their files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dasklab.results.validity import verdict
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import FakeLab, Json
from tests.unit.dasklab.results.trials import host

Measure = Callable[..., driver.ActiveRun]


def reasons(measured: Measure, change: Callable[[Json], object]) -> list[str]:
    """Change the files of the trials with 50 ms of delay; return why these trials are invalid."""

    def spoil(trial: Json, files: Json) -> int:
        if trial["cell"] == "delay_ms=50":
            change(files)
        return 0

    results = verdict.assess(measured(FakeLab(spoil=spoil)).opened_again())
    invalid = [result for result in results.values() if result.status == "invalid"]
    assert {result.cell for result in invalid} == {"delay_ms=50"}
    return list(invalid[0].reasons)


def test_trials_as_requested_are_ok(measured: Measure) -> None:
    results = verdict.assess(measured(FakeLab()).opened_again())
    assert {result.status for result in results.values()} == {"ok"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: f.pop("measured.json"), "the links were not measured: measured.json is missing"),
        (lambda f: f.pop("configured.json"), "the links were not read back: configured.json is missing"),
        (
            lambda f: host(f, "scheduler").update(qdisc_after=[]),
            "scheduler: the impairment was gone when the repeats ended",
        ),
        (
            lambda f: host(f, "scheduler")["qdisc_after"][0].update(drops=7),
            "scheduler: netem dropped 7 frames, but no loss was requested (its limit was too small)",
        ),
        (
            lambda f: f["measured.json"]["rtt"][0].update(samples_ms=[]),
            "scheduler to worker-1, before the repeats: requested 0 % loss, 10 of 10 pings were lost",
        ),
    ],
)
def test_difference_makes_its_own_trials_invalid(
    measured: Measure, change: Callable[[Json], object], reason: str
) -> None:
    assert reasons(measured, change) == [reason]
