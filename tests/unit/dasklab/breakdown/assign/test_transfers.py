"""What counts as time of the network: nothing within a machine, and not what the ends do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.answers.path.replay import replay
from dasklab.breakdown.assign.transfers import on_client_link
from dasklab.breakdown.model.causes import MESSAGE, WIRE
from dasklab.breakdown.model.repeat import Repeat

from tests.unit.dasklab.breakdown.timelines import Row, Spans, by_hand, make_repeat, task

RESULT = task("a", "worker-1", 1, 0.0, 1.0, handled=1.0)


def wire_s(repeat: Repeat) -> float:
    path = critical_path(repeat)
    return float(path.seconds[path.is_cause(WIRE, MESSAGE)].sum())


def on_link_s(repeat: Repeat) -> float:
    link = on_client_link(repeat)
    return float((link.stop - link.start).sum())


def gather(busy: Spans = (), nbytes: float = 6e6) -> Repeat:
    """Gather a result from 2 to 10."""
    call: Row = {"kind": "gather", "start_s": 2.0, "stop_s": 10.0}
    repeat = make_repeat([RESULT], busy={"client": busy}, tables={"calls": [call]})
    return replace(repeat, tasks=replace(repeat.tasks, nbytes=np.array([nbytes])))


def test_nothing_within_a_machine_is_on_the_wire() -> None:
    repeat = by_hand()
    local = replace(repeat, on_loopback=True)
    assert wire_s(repeat) > 1.0 and wire_s(local) == 0.0
    assert replay(repeat).transfer_s > 1.0 and replay(local).transfer_s == 0.0
    assert critical_path(local).seconds.sum() == pytest.approx(10.0)


def test_unpickling_at_the_client_is_not_on_its_link() -> None:
    """Each of some results keeps the client's event loop busy; the last one alone is near the call's end."""
    busy = [(2.0 + number, 2.9 + number) for number in range(8)]
    assert on_link_s(gather(busy)) == pytest.approx(0.8)
    assert on_link_s(gather()) == 8.0


@pytest.mark.parametrize(("nbytes", "seconds"), [(6e6, 8.0), (1e3, 0.0), (256e6, 0.0)])
def test_only_slow_and_large_results_show_a_link_of_a_client_on_loopback(
    nbytes: float, seconds: float
) -> None:
    assert on_link_s(replace(gather(nbytes=nbytes), on_loopback=True)) == seconds


@pytest.mark.parametrize(
    ("addresses", "on_loopback"),
    [
        (["tcp://127.0.0.1:4000", "tls://127.0.0.1:4001"], True),
        (["inproc://10.0.0.1/1/2", "inproc://10.0.0.1/1/3"], True),
        (["tcp://127.0.0.1:4000", "tcp://10.0.0.2:4000"], False),
        ([None, None], False),
    ],
)
def test_workers_on_loopback_are_known_by_their_addresses(
    addresses: list[str | None], on_loopback: bool
) -> None:
    rows = [
        {"worker": f"worker-{n}", "threads": 1, "address": address} for n, address in enumerate(addresses)
    ]
    assert make_repeat(tables={"workers": rows}).on_loopback is on_loopback
