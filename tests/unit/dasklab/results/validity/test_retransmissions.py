"""Retransmissions that neither settings nor probes explain: real bursts do not count, a steady loss does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dasklab.model.files import Hosts, Measured
from dasklab.results.validity import retransmissions, verdict
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import FakeLab, Json
from tests.unit.dasklab.results.trials import trial
from tests.unit.dasklab.results.validity.test_node import FACTS

QUIET = {"client": (0, 472), "scheduler": (7, 1825), "worker-1": (4, 44780), "worker-2": (3, 39251)}
LOSSY = QUIET | {"worker-2": (785, 39251)}  # 2 % of what worker-2 sends
BURSTS = QUIET | {"worker-1": (412, 107442), "worker-2": (294, 128477)}  # of a published run


def hosts(counters: dict[str, tuple[int, int]]) -> Json:
    tcp = {name: {"RetransSegs": again, "OutSegs": sent} for name, (again, sent) in counters.items()}
    facts = {name: FACTS | {"seconds": 9.0, "tcp": counts} for name, counts in tcp.items()}
    return {"hosts": facts, "hypervisor": {"name": "pve", "accel": "lxc"}}


def probes(retransmits: int) -> Measured:
    """A probe that sends 100,000 segments."""
    way = {"src": "worker-1", "dst": "worker-2", "phase": "before"}
    probe = {"proto": "tcp", "mbit": 1158.4, "seconds": 1.0, "retransmits": retransmits}
    return Measured.model_validate({"throughput": [way | probe]})


def warnings(counters: dict[str, tuple[int, int]], retransmits: int = 250, **settings: Any) -> list[str]:
    judged = Hosts.model_validate(hosts(counters))
    return list(retransmissions.warnings(trial(**settings), judged, probes(retransmits), 0.999))


def test_loss_from_outside_is_reported_with_the_host_that_suffers_most() -> None:
    assert warnings(LOSSY) == [
        "0.91 % of the TCP segments in the repeats were retransmitted, most by worker-2 (1.96 % of its own);"
        " neither the settings nor the probes (0.25 %) explain that, so frames may have been lost outside of"
        " the lab"
    ]


@pytest.mark.parametrize(
    "counters",
    [
        QUIET,
        BURSTS,
        {"scheduler": (193, 12384), "worker-1": (732, 2436810)},  # a host that sends little
        {"client": (1, 1)},
        {},
    ],
)
def test_usual_retransmissions_are_not_reported(counters: dict[str, tuple[int, int]]) -> None:
    assert warnings(counters) == []


def test_a_link_whose_probes_retransmit_as_much_explains_it() -> None:
    """So does an emulated RTL8139: 1.4 % in the probes, 1.5 % in the repeats."""
    assert warnings(LOSSY, retransmits=1400) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"links": {"worker-1": {"loss_pct": 1}}},
        {"links": {"worker-1": {"delay_ms": 5, "jitter_ms": 2}}},
        {"links": {"worker-1": {"delay_ms": 5, "reorder_pct": 2}}},
        {"links": {"worker-1": {"rate_mbit": 50}}},
        {"nics": {"worker-1": {"rate_mbit": 50}}},
        {"faults": [{"does": "cut", "host": "worker-1", "at_s": 1, "for_s": 2}]},
    ],
)
def test_settings_that_make_tcp_retransmit_explain_it(settings: Json) -> None:
    assert warnings(LOSSY, **settings) == []


def test_a_delay_does_not_explain_it() -> None:
    assert len(warnings(LOSSY, links={"worker-1": {"delay_ms": 50}})) == 1


def test_hosts_that_do_not_count_are_not_judged() -> None:
    judged = Hosts.model_validate(hosts(LOSSY))
    judged.hosts["worker-1"].tcp.clear()
    assert list(retransmissions.warnings(trial(), judged, Measured(), 0.999)) == []


def test_a_trial_with_a_warning_counts(measured: Callable[..., driver.ActiveRun]) -> None:
    def lose(trial: Json, files: Json) -> int:
        if trial["null"]:
            files["hosts.json"] |= {"hosts": hosts(LOSSY)["hosts"]}
        return 0

    results = verdict.assess(measured(FakeLab(spoil=lose)).opened_again()).values()
    assert {result.status for result in results} == {"ok"}
    assert {bool(result.warnings) for result in results if "null" in result.trial} == {True}
    assert not any(result.warnings for result in results if "null" not in result.trial)
