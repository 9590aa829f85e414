"""The engine that computes: Dask, or Spark on the same hosts; and which settings belong to which engine.

A workload runs on Spark if ``lab/dasklab/workloads`` has a file ``_spark_NAME.py`` for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dasklab.model import workloads
from dasklab.paths import WORKLOADS

Engine = Literal["dask", "spark"]
VERSION = "4.3.0"  # of the package pyspark, which contains Spark
PREFIX = "_spark_"
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
# Role spark sets these, the same in every trial: where everything is, and its share of a host.
SET_BY_ROLE = r"spark\.(.*\.)?(port|host|bindAddress|master|memory|cores|dir|maxRetries)"


def spark_workloads() -> tuple[str, ...]:
    """Return the names of the workloads that run on Spark."""
    return tuple(sorted(path.stem.removeprefix(PREFIX) for path in WORKLOADS.glob(f"{PREFIX}*.py")))


def find_mistake(engine: Engine, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """Return which of the settings the engine does not have; None if it has them all."""
    if engine == "dask":
        return "spark: these settings need engine: spark" if settings.get("spark") else None
    if names := [name for name in DASK_ONLY if name in settings and settings[name] != defaults[name]]:
        return f"spark does not have {', '.join(names)}, which belong to Dask"
    return next(_missing_on_spark(settings["workload"]), None) if "workload" in settings else None


def _missing_on_spark(workload: Any) -> Iterator[str]:
    if workload.name not in spark_workloads():
        yield f"spark has no workload {workload.name!r}; allowed: {', '.join(spark_workloads())}"
        return
    allowed = workloads.parameters((WORKLOADS / f"{PREFIX}{workload.name}.py").read_text(encoding="utf-8"))
    for key in workload.params:
        if key not in allowed:
            yield f"{workload.name} on spark has no parameter {key!r}; allowed: {', '.join(allowed)}"


def spark_text(value: bool | int | float | str) -> str:
    """Return a setting's value as Spark prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_spark_settings(settings: dict[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if not re.fullmatch(r"spark(\.\w+)+", name):
            raise ValueError(f"{name!r} is not a setting of Spark, such as spark.sql.adaptive.enabled")
        if re.fullmatch(SET_BY_ROLE, name):
            raise ValueError(f"{name} is the same in every trial; set the inventory's spark_... variables")
        if re.search(r"\s", str(value)):
            raise ValueError(f"{name}: a value has no spaces, got {value!r}")
    return settings


SparkSettings = Annotated[
    dict[str, bool | int | float | str],
    AfterValidator(_require_spark_settings),
    Field(description="Spark's own settings by name"),
]
