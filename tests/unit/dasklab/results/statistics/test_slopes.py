"""The slope of the time over 1/rate, in MB."""

from __future__ import annotations

import pandas as pd
import pytest
from dasklab.report.pages import tables
from dasklab.results.statistics.slopes import rate_slopes

from tests.unit.dasklab.conftest import Json

FACTORS = ["engine", "work", "rate_mbit"]
VALID: Json = {
    "metric": "compute_s",
    "warmup": False,
    "null": False,
    "status": "ok",
    "src": "",
    "dst": "",
}
INVALID: list[Json] = [{"warmup": True}, {"null": True}, {"status": "invalid"}, {"metric": "rtt_ms"}]


def frame(seconds: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Return a table in which the repeats of each engine take a + b / rate, and some invalid samples.

    Args:
        seconds: for each engine a, in seconds, and b, in Mbit.
    """
    rows = [
        {
            "engine": engine,
            "work": "join",
            "rate_mbit": rate,
            "value": a + (b / rate if rate else 0),
            "block": block,
            "cell": f"engine={engine},rate_mbit={rate}",
        }
        for engine, (a, b) in seconds.items()
        for rate in (0, 100, 50)
        for block in (1, 2, 3)
    ]
    outlier = {"engine": "dask", "work": "join", "rate_mbit": 50, "value": 1e6, "block": 1, "cell": "x"}
    table = pd.DataFrame([row | VALID for row in rows] + [outlier | VALID | flaw for flaw in INVALID])
    table.attrs["factors"] = FACTORS
    return table


def test_slope_is_the_data_that_waits_for_the_link_whatever_else_the_run_does() -> None:
    """800 Mbit are 100 MB."""
    slopes = rate_slopes(frame({"dask": (1, 800), "spark": (30, 400)}), FACTORS)
    assert [slope.name for slope in slopes] == ["engine=dask,work=join", "engine=spark,work=join"]
    assert [slope.waited_mb.value for slope in slopes] == pytest.approx([100, 50])
    assert slopes[0].rates_mbit == (0, 50, 100)


def test_report_has_a_table_of_slopes() -> None:
    [table] = tables.rate_slopes(frame({"dask": (1, 800)}))
    assert table.rows == [["engine=dask,work=join", "no cap, 50.0, 100", "100 (100 to 100)"]]


def test_experiment_without_several_rates_has_no_slope() -> None:
    table = frame({"dask": (1, 800)})
    assert rate_slopes(table, ["engine", "work"]) == []
    assert rate_slopes(table[table.rate_mbit == 50], FACTORS) == []
