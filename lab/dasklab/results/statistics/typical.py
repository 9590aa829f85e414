"""The typical value of a set of samples, and of the baseline's probes by node."""

from __future__ import annotations

import pandas as pd

from dasklab.results.statistics.inference import Fit
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import Scale, has_ratios, level


def typical(samples: pd.DataFrame) -> Interval:
    """Return the mean over the trials of one cell, each trial being its median, with an interval."""
    scale = Scale.of(samples, has_ratios(samples, zero_based=False))
    rows = scale.values(samples)
    blocks = list(zip(rows.run, rows.block, strict=True))
    fit = Fit(["cell"] * len(rows), blocks, rows.value.to_numpy())
    return level(fit.mean("cell"), float(rows.reference.mean()), scale.log)


def by_node(frame: pd.DataFrame, metric: str) -> dict[str, tuple[int, Interval]]:
    """Map the node, or the nodes, of the baseline's probes to the number of samples and the typical value.

    Empty if all probes were on one node, or the nodes are unknown.
    """
    probes = frame[(frame.metric == metric) & frame.baseline & frame.status.eq("ok") & frame.dst.ne("")]
    nodes = {
        str(node): (len(samples), typical(samples))
        for node, samples in probes[probes.node.ne("")].groupby("node")
    }
    return nodes if len(nodes) > 1 else {}
