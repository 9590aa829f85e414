"""Nothing of Spark is imported unless an experiment asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.dasklab.stored_run import previous_run

ROOT = Path(__file__).parents[4]
SCRIPT = """
import sys
import dasklab.cli
from dasklab.model.experiments import experiment
from dasklab.running.plan.trials import plan
from dasklab.running.playbooks.orders import orders
from tests.unit.dasklab.conftest import SETUP
from tests.unit.dasklab.running.playbooks.test_orders import LAB

def imported():
    return sorted(name for name in sys.modules if name.startswith("dasklab.spark"))

run = sys.argv[1]
for argv in ["--help"], ["run", "--help"], ["results", "show", run], ["explain", run]:
    dasklab.cli.main(argv, standalone_mode=False)
    print(argv[0], imported(), file=sys.stderr)
for name in ("baseline", "nic_matrix", "faults", "spark"):
    [trial, *_] = plan(name, experiment.load(name)[1], SETUP)
    orders(trial, LAB)
    print(name, imported(), file=sys.stderr)
"""


def test_spark_is_imported_for_its_experiment_only(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", SCRIPT, str(previous_run(tmp_path))]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    *others, spark = [line for line in ended.stderr.splitlines() if line.endswith("]")]
    assert "dasklab.spark.settings" in spark
    assert len(others) == 7 and [line for line in others if not line.endswith(" []")] == []
