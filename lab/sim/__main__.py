"""``python -m lab.sim``: a scenario comes in, its outcome goes out; a mistake is one line."""

from __future__ import annotations

import json
import sys

from lab.errors import LabError
from lab.model.strict import validate
from lab.sim.scenario import Scenario
from lab.sim.simulate import simulate

if __name__ == "__main__":
    try:
        outcome = simulate(validate(Scenario, json.load(sys.stdin), "scenario"))
    except LabError as mistake:
        sys.exit(str(mistake))
    sys.stdout.write(outcome.model_dump_json())
