"""``python -m dasklab.sim``: read a scenario from standard input, write its outcome to standard output."""

from __future__ import annotations

import json
import sys

from dasklab.errors import LabError
from dasklab.model.forms.strict import validate
from dasklab.sim.scenario import Scenario
from dasklab.sim.simulate import simulate

if __name__ == "__main__":
    try:
        outcome = simulate(validate(Scenario, json.load(sys.stdin), "scenario"))
    except LabError as error:
        sys.exit(str(error))
    sys.stdout.write(outcome.model_dump_json())
