"""A calibrated trial of two workers, for the tests of predictions."""

from __future__ import annotations

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.predict.calibration import Calibration, TaskSamples
from dasklab.sim.costs import Costs

PAYLOAD = 1448 / 1514
# Of a task's 2 s, a core computes for 0.5 s; waiting for a core takes as long (starved = 1); 1 s is neither.
CALIBRATION = Calibration(
    experiment="e",
    trial="t",
    cell="baseline",
    machine="lxc",
    versions={},
    tasks={"add": TaskSamples(samples=((2.0, 100),), cpu_share=0.25)},
    starved=1.0,
    costs={"scheduler": Costs(op_s=0.001)},
    driver_s=0.5,
    threads=2,
    rtt_ms=0.2,
    uncapped_mbit=9000,
    burst_bytes=1000,
    queue_bytes=5,
)
TRIAL = RequestedTrial.model_validate(
    {
        "experiment": "e",
        "trial": "t",
        "cell": "baseline",
        "block": 1,
        "baseline": True,
        "null": False,
        "factors": {},
        "workers": 2,
        "links": {"worker-2": {"delay_ms": 5, "loss_pct": 1}},
        "nics": {
            "client": {"rate_mbit": 0},
            "scheduler": {"rate_mbit": 100},
            "worker-1": {"rate_mbit": 200},
            "worker-2": {"rate_mbit": 400},
        },
        "tested": [],
        "captured_repeats": 0,
    }
)
