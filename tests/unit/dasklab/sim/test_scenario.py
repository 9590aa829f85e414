"""What always holds of a scenario."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.errors import LabError

from tests.unit.dasklab.sim.samples import CUT, KILL, scenario

RANGE = CUT | {"at_s": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"racks": [{"workers": 1}, {"workers": 1}]}, "racks: they hold 2 workers, there are 3"),
        ({"tasks": {}}, "tasks: there is no record"),
        ({"tasks": {"add": []}}, "tasks: there is no record"),
        ({"tasks": {"add": [(0.1, -1.0, 8)]}}, "tasks.add: a record has a negative number"),
        ({"rates_mbit": {"worker-1": -1.0}}, "rates_mbit: -1.0 is negative"),
        ({"late_s": [0.0, -0.5]}, "late_s: -0.5 is negative"),
        ({"workers": 1, "rates_mbit": {}, "faults": [KILL]}, "faults.0.host: no 'worker-2' to kill"),
        ({"faults": [KILL, CUT, KILL]}, "faults.2.host: worker-2 has a fault already"),
        ({"faults": [RANGE]}, "faults: the moment of worker-1 is a range"),
    ],
)
def test_scenario_that_breaks_an_invariant_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError) as error:
        scenario(**changes).check()
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("changes", [{}, {"faults": [KILL, CUT]}, {"racks": [{"workers": 3}]}])
def test_good_scenario_is_accepted(changes: dict[str, Any]) -> None:
    scenario(**changes).check()
