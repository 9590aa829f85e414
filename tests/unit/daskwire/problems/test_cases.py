"""Captures of real clusters whose fault is known, see tests/data/wire/cases/README.md."""

from __future__ import annotations

import pytest
from daskwire import Capture, open_capture

from tests.unit.daskwire.build import DATA
from tests.unit.daskwire.conftest import validate
from tests.unit.daskwire.problems.cluster import findings

CASES = DATA / "cases"
FIRST_PROBLEM = {  # file: its kind and least cost
    "workers-announce-loopback": ("unreachable address", 36),
    "tls-other-ca": ("TLS failures", 0),
}


def case(*names: str) -> Capture:
    capture = open_capture([CASES / f"{name}.pcap.gz" for name in names])
    validate(capture)
    return capture


@pytest.mark.parametrize("name", FIRST_PROBLEM)
def test_fault_is_the_first_problem(name: str) -> None:
    row, *others = findings(case(name))
    assert {other["problem"] for other in others} <= {"TLS without keys"}
    kind, cost_s = FIRST_PROBLEM[name]
    assert row["problem"] == kind and row["cost_s"] >= cost_s
