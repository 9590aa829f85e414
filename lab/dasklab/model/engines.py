"""What computes: Dask, or Spark beside it, on the same hosts. What of an experiment goes with which.

A workload runs on Spark where ``lab/workloads`` has a ``_spark_NAME.py`` of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dasklab.model import workloads
from dasklab.paths import WORKLOADS

Engine = Literal["dask", "spark"]
VERSION = "4.3.0"  # of pyspark, which is Spark and its programs as a package
PREFIX = "_spark_"
OF_DASK = (
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
# Where everything is and how much of a host it takes is the role's, the same in every trial.
OF_ROLE = r"spark\.(.*\.)?(port|host|bindAddress|master|memory|cores|dir|maxRetries)"


def on_spark() -> tuple[str, ...]:
    """The workloads that run on Spark."""
    return tuple(sorted(path.stem.removeprefix(PREFIX) for path in WORKLOADS.glob(f"{PREFIX}*.py")))


def mistake(engine: Engine, asked: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """What of the settings the engine does not have, in words; None if it has all."""
    if engine == "dask":
        return (
            "dask has none of Spark's settings; give engine: spark with them" if asked.get("spark") else None
        )
    if given := [name for name in OF_DASK if name in asked and asked[name] != defaults[name]]:
        return f"spark goes without {', '.join(given)}: of Dask alone"
    return next(_not_on_spark(asked["workload"]), None) if "workload" in asked else None


def _not_on_spark(workload: Any) -> Iterator[str]:
    if workload.name not in on_spark():
        yield f"spark has no workload {workload.name!r}; allowed: {', '.join(on_spark())}"
        return
    allowed = workloads.parameters((WORKLOADS / f"{PREFIX}{workload.name}.py").read_text(encoding="utf-8"))
    for key in workload.params:
        if key not in allowed:
            yield f"{workload.name} on spark has no parameter {key!r}; allowed: {', '.join(allowed)}"


def written(value: bool | int | float | str) -> str:
    """A setting as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if not re.fullmatch(r"spark(\.\w+)+", name):
            raise ValueError(f"{name!r} is no setting of Spark's; they are as spark.sql.adaptive.enabled")
        if re.fullmatch(OF_ROLE, name):
            raise ValueError(
                f"{name} is the same in every trial; the inventory's spark_... variables have it"
            )
        if re.search(r"\s", str(value)):
            raise ValueError(f"{name}: a value has no spaces, got {value!r}")
    return settings


SparkSettings = Annotated[
    dict[str, bool | int | float | str],
    AfterValidator(_known),
    Field(description="Spark's own settings, by their names"),
]
