"""The columns of the tidy table of samples, which ``dasklab.results.load`` returns: one row per sample.

Each factor of the experiment has a column of its own between ``block`` and ``baseline``, so a factor must not
have the name of one of these columns.
"""

from __future__ import annotations

COLUMNS = {
    "experiment": "name of the experiment",
    "run": "time of the run, which is the name of its directory",
    "trial": "name of the trial, which is the name of its directory",
    "cell": "the cell's levels, such as `delay_ms=50`",
    "block": "number of the block",
    "baseline": "whether the trial is the baseline",
    "null": "whether it is the null trial, the exact copy of the baseline",
    "workload": "what the trial computed",
    "simulated": "whether the sample was simulated, not measured",
    "prediction_error": "of a simulated sample: the prediction error of the validation; intervals include it",
    "status": "ok, invalid (not as requested), unsupported, failed",
    "metric": "name of the metric, a key of `dasklab.model.settings.metric.METRICS`",
    "value": "the sample, in the metric's unit",
    "sample": "number of the sample within its trial and metric",
    "warmup": "whether it is a warm-up, which leaves the statistics",
    "phase": "of a probe: before or after the repeats",
    "src": "of a probe: the sending host",
    "dst": "of a probe: the receiving host",
    "node": "the node of the hosts concerned; several nodes are separated by spaces",
    "start": "of a repeat: when it started, in seconds since the epoch",
    "tested": "false for a probe of links that the trial leaves alone (if it changes no link: that no trial"
    " changes); true for all other samples",
}
