"""Versions of Python packages that a trial requests instead of the pinned ones, first of all Dask's.

An experiment says ``packages: {dask: 2024.8.0}``; all other packages stay as pinned, so that nothing but Dask
differs. Distributed always has Dask's version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from dasklab.errors import did_you_mean
from dasklab.model.settings.engines import Engine
from dasklab.paths import ROLES

PINS = ROLES / "dask" / "files" / "requirements.txt"
VERSION = r"[0-9]+(\.[0-9]+)*"
BOKEH = "3.9.2"  # draws Dask's performance report; installed only where a trial requests one
PY_SPY = "0.4.3"  # profiles processes; installed only where a trial requests it
OLDEST = "2024.8.0"  # the oldest Dask that the recorder, the workloads and the read-back work with


@cache
def pins() -> Mapping[str, str]:
    """Return each package of the lab's machines with its version."""
    lines = (line.partition("#")[0].strip() for line in PINS.read_text(encoding="utf-8").splitlines())
    return dict(line.split("==") for line in lines if line)


def extra_packages(performance_report: bool, py_spy: bool, engine: Engine) -> dict[str, str]:
    """Return the packages that the performance report, the profiler and Spark need beyond the pins."""
    extra = ({"bokeh": BOKEH} if performance_report else {}) | ({"py-spy": PY_SPY} if py_spy else {})
    if engine == "spark":
        from dasklab.spark import settings as spark

        extra["pyspark"] = spark.PYSPARK_VERSION
    return extra


def unpinned(requested: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the packages whose version differs from the pinned one; often there are none."""
    dask = requested.get("dask", pins()["dask"])
    versions = {**requested, "distributed": dask, **(extra or {})}
    return {name: version for name, version in sorted(versions.items()) if version != pins().get(name)}


def unsupported(requested: Mapping[str, str]) -> Iterator[str]:
    """Yield a reason for each version that the lab cannot run."""
    dask = requested.get("dask", pins()["dask"])
    if version_key(dask) < version_key(OLDEST):
        yield f"dask {dask}: the recorder and the read-back need {OLDEST} or later"


def version_key(version: str) -> tuple[int, ...]:
    """Return the key that sorts versions. Parts that are no numbers, such as a commit, are ignored."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _require_known_packages(requested: dict[str, str]) -> dict[str, str]:
    for name, version in requested.items():
        if name == "distributed":
            raise ValueError("distributed always has dask's version; request dask")
        if name not in pins():
            allowed = ", ".join(pin for pin in pins() if pin != "distributed")
            raise ValueError(f"no package {name!r}; allowed: {allowed}{did_you_mean(name, pins())}")
        if not re.fullmatch(VERSION, version):
            raise ValueError(f"{name}: a version looks like 2024.8.0, got {version!r}")
    return requested


Packages = Annotated[
    dict[str, str],
    AfterValidator(_require_known_packages),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "pattern": VERSION}}),
]
