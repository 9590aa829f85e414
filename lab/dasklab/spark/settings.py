"""Spark's version, its workloads, and the settings that an experiment may change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dasklab.paths import WORKLOADS

PYSPARK_VERSION = "4.3.0"
PREFIX = "_spark_"
# Role spark sets these, the same in every trial: where everything is, and its share of a host.
SET_BY_ROLE = r"spark\.(.*\.)?(port|host|bindAddress|master|memory|cores|dir|maxRetries)"


def spark_workloads() -> tuple[str, ...]:
    """Return the names of the workloads that run on Spark: those with a script ``_spark_NAME.py``."""
    return tuple(sorted(path.stem.removeprefix(PREFIX) for path in WORKLOADS.glob(f"{PREFIX}*.py")))


def script(name: str) -> Path:
    """Return the script of a workload on Spark."""
    return WORKLOADS / f"{PREFIX}{name}.py"


def require_valid(settings: Mapping[str, bool | int | float | str]) -> None:
    """Check an experiment's settings of Spark.

    Raises:
        ValueError: a name or a value is none of Spark's, or role spark sets it.
    """
    for name, value in settings.items():
        if not re.fullmatch(r"spark(\.\w+)+", name):
            raise ValueError(f"{name!r} is not a setting of Spark, such as spark.sql.adaptive.enabled")
        if re.fullmatch(SET_BY_ROLE, name):
            raise ValueError(f"{name} is the same in every trial; set the inventory's spark_... variables")
        if re.search(r"\s", str(value)):
            raise ValueError(f"{name}: a value has no spaces, got {value!r}")


def spark_text(value: bool | int | float | str) -> str:
    """Return a setting's value as Spark prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
