"""What `dasklab up` ends with: one sentence with titles instead of names of metrics, and the next command."""

from __future__ import annotations

import pandas as pd
from dasklab.console.trials import baseline_run


def test_baseline_is_one_sentence() -> None:
    values: dict[str, list[float]] = {
        "compute_s": [3.46, 3.55, 3.35],
        "throughput_mbit": [1912],
        "rtt_ms": [2.31],
        "drop_events": [0],
    }
    sentence = baseline_run.sentence({name: pd.Series(numbers) for name, numbers in values.items()})
    assert sentence == (
        "Baseline: 3.46 s to compute (3.35 to 3.55 in 3 repeats);"
        " links 1.91 Gbit/s; RTT 2.31 ms; nothing dropped."
    )


def test_drops_are_counted() -> None:
    series = {"compute_s": pd.Series([0.4]), "drop_events": pd.Series([2, 1])}
    assert baseline_run.sentence(series).endswith("(0.400 to 0.400 in 1 repeat); 3 frames dropped.")
