"""The engine that computes: Dask, or Spark on the same hosts; and which settings belong to which engine.

What concerns Spark is in `dasklab.spark`, which is imported only where an experiment asks for Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dasklab.errors import did_you_mean
from dasklab.model.settings import workloads

Engine = Literal["dask", "spark"]
DASK_ONLY = (
    "dask",
    "packages",
    "scheduler",
    "worker",
    "layout",
    "faults",
    "performance_report",
    "py_spy",
    "capture",
)


def find_mistake(engine: Engine, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """Return which of the settings the engine does not have; None if it has them all."""
    if engine == "dask":
        return "spark: these settings need engine: spark" if settings.get("spark") else None
    if names := [name for name in DASK_ONLY if name in settings and settings[name] != defaults[name]]:
        return f"spark does not have {', '.join(names)}, which belong to Dask"
    return next(_missing_on_spark(settings["workload"]), None) if "workload" in settings else None


def _missing_on_spark(workload: Any) -> Iterator[str]:
    from dasklab.spark import settings as spark

    if workload.name not in spark.spark_workloads():
        choice = f"{', '.join(spark.spark_workloads())}{did_you_mean(workload.name, spark.spark_workloads())}"
        yield f"spark has no workload {workload.name!r}; allowed: {choice}"
        return
    allowed = workloads.parameters(spark.script(workload.name).read_text(encoding="utf-8"))
    for key in workload.params:
        if key not in allowed:
            choice = f"{', '.join(allowed)}{did_you_mean(key, allowed)}"
            yield f"{workload.name} on spark has no parameter {key!r}; allowed: {choice}"


def _require_spark_settings(settings: dict[str, Any]) -> dict[str, Any]:
    if settings:
        from dasklab.spark.settings import require_valid

        require_valid(settings)
    return settings


SparkSettings = Annotated[
    dict[str, bool | int | float | str],
    AfterValidator(_require_spark_settings),
    Field(description="Spark's own settings by name"),
]
