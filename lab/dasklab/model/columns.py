"""The columns of the tidy table of samples, which ``dasklab.results.load`` returns: a row per sample.

Each factor of the experiment is a column of its own between ``block`` and ``baseline``, so no factor may be
called like one of these.
"""

from __future__ import annotations

COLUMNS = {
    "experiment": "name of the experiment",
    "run": "the run's time, its directory's name",
    "trial": "name of the trial's directory",
    "cell": "its levels, as `delay_ms=50`",
    "block": "the block that it belongs to",
    "baseline": "the trial is the baseline",
    "null": "it is the null trial, the baseline's exact copy",
    "workload": "what the trial computed",
    "simulated": "a simulation's, measured nowhere",
    "missed": "by which share simulations missed what they were compared with; intervals allow for it",
    "status": "ok, invalid (not as asked), unsupported, failed",
    "metric": "what was measured, one of `dasklab.model.metric.METRICS`",
    "value": "the sample, in the metric's unit",
    "sample": "its number within the trial and metric",
    "warmup": "it is a warm-up, and leaves the statistics",
    "phase": "before or after the runs, for probes",
    "src": "from which host, for probes",
    "dst": "to which host, for probes",
    "node": "where it was measured: one node of the cluster, or, of a way that crosses, all of them",
    "start": "seconds since the epoch, for runs",
    "tested": "a probe passes a link that this trial changes, or the way to one peer where it changes that"
    " alone; in a trial that changes none, one that another trial changes; true of all else",
}
