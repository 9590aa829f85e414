"""Versions of packages, Dask's first of all, as an experiment gives them: what replaces the pins for a trial.

An experiment says ``packages: {dask: 2024.8.0}``; all else stays as pinned, so that nothing but Dask differs.
Distributed is always of Dask's version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from dasklab.errors import did_you_mean
from dasklab.model.engines import VERSION as SPARK
from dasklab.model.engines import Engine
from dasklab.paths import ROLES

PINS = ROLES / "dask" / "files" / "requirements.txt"
VERSION = r"[0-9]+(\.[0-9]+)*"
BOKEH = "3.9.2"  # what Dask's own report is drawn with; nowhere but where that is asked for
PY_SPY = "0.4.3"  # what looks at processes; the same
OLDEST = "2024.8.0"  # that the preload, the workloads and what is read back were tried with


@cache
def pins() -> Mapping[str, str]:
    """Each package that the lab's machines have, with its version."""
    lines = (line.partition("#")[0].strip() for line in PINS.read_text().splitlines())
    return dict(line.split("==") for line in lines if line)


def tools(performance_report: bool, py_spy: bool, engine: Engine) -> dict[str, str]:
    """What Dask's own report, a look at processes and Spark take beside the pins."""
    report = {"bokeh": BOKEH} if performance_report else {}
    return report | ({"py-spy": PY_SPY} if py_spy else {}) | ({"pyspark": SPARK} if engine == "spark" else {})


def resolved(asked: Mapping[str, str], more: Mapping[str, str] | None = None) -> dict[str, str]:
    """All that is not there as pinned, for these versions and ``more`` packages; often nothing."""
    dask = asked.get("dask", pins()["dask"])
    wanted = {**asked, "distributed": dask, **(more or {})}
    return {name: version for name, version in sorted(wanted.items()) if version != pins().get(name)}


def cannot(asked: Mapping[str, str]) -> Iterator[str]:
    """What of these versions the lab cannot do, in words."""
    dask = asked.get("dask", pins()["dask"])
    if order(dask) < order(OLDEST):
        yield f"dask {dask}: what runs inside it and what is read back need {OLDEST} or later"


def order(version: str) -> tuple[int, ...]:
    """What versions are sorted by; what follows the numbers, as a commit between two of them, is left out."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _known(asked: dict[str, str]) -> dict[str, str]:
    for name, version in asked.items():
        if name == "distributed":
            raise ValueError("distributed is of dask's version; give dask's")
        if name not in pins():
            allowed = ", ".join(pin for pin in pins() if pin != "distributed")
            raise ValueError(f"no package {name!r}; allowed: {allowed}{did_you_mean(name, pins())}")
        if not re.fullmatch(VERSION, version):
            raise ValueError(f"{name}: a version is as 2024.8.0, got {version!r}")
    return asked


Packages = Annotated[
    dict[str, str],
    AfterValidator(_known),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "pattern": VERSION}}),
]
