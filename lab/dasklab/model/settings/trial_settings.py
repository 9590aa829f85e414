"""The settings of a trial: what an experiment's file, or a level of a factor, may set."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from dasklab.model.forms.strict import Strict
from dasklab.model.settings import dask_settings, engines
from dasklab.model.settings.engines import Engine, SparkSettings
from dasklab.model.settings.faults import Fault
from dasklab.model.settings.link import Link
from dasklab.model.settings.nic import GuestOverride, NicOverride
from dasklab.model.settings.packages import Packages
from dasklab.model.settings.variants import LayoutText, Scheduler, Worker
from dasklab.model.settings.workloads import Source

Scalar = bool | int | float | str


class Workload(Strict):
    """A workload by its name, with the parameters that differ from its defaults.

    ``source`` is set if the workload does not come with dasklab, so that a run keeps what it computed.
    """

    name: str = "array_study"
    params: dict[str, Scalar] = {}
    source: Source | None = Field(default=None, description="Python; if not given, NAME.py beside the file")


class Probes(Strict):
    """The measurements of the links before and after the repeats."""

    pings: int = Field(default=30, ge=0, le=10_000)
    interval_s: float = Field(default=0.2, ge=0.01, le=10)
    iperf_runs: int = Field(default=1, ge=0, le=100)
    iperf_s: float = Field(default=3, gt=0, le=600)
    udp: bool = False


class SharedSettings(Strict):
    """Settings of a whole trial, not of one host. An experiment has them in the same form."""

    bridge: Literal["learning", "flooding"] = "learning"
    workers: int = Field(default=3, ge=1, le=99)
    workload: Workload = Workload()
    repeats: int = Field(default=10, ge=1, le=10_000)
    warmups: int = Field(default=1, ge=0, le=100)
    capture: bool = False
    ttl_s: int = Field(default=3600, ge=30, le=86_400)
    probes: Probes = Probes()
    dask: dict[str, Any] = Field(default={}, description="Dask's own settings, as in its YAML files")
    performance_report: bool = Field(
        default=False, description="Dask's performance report, of an extra cluster"
    )
    py_spy: bool = Field(default=False, description="profiles of Dask's processes, of an extra cluster")
    packages: Packages = Field(default={}, description="versions of packages instead of the pinned ones")
    scheduler: Scheduler = Scheduler()
    worker: Worker = Worker()
    layout: LayoutText | None = None
    faults: tuple[Fault, ...] = ()
    spark: SparkSettings = {}
    engine: Engine = Field(default="dask", validate_default=True, description="what computes")

    @field_validator("engine")
    @classmethod
    def _engine_has_settings(cls, engine: Engine, info: ValidationInfo) -> Engine:
        defaults = {name: field.default for name, field in SharedSettings.model_fields.items()}
        if mistake := engines.find_mistake(engine, info.data, defaults):
            raise ValueError(mistake)
        return engine

    @field_validator("dask")
    @classmethod
    def _dask_has_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if mistake := dask_settings.find_mistake(settings):
            raise ValueError(mistake)
        return settings


class Settings(SharedSettings):
    """Everything that a level may override. ``links``, ``guests`` and ``nics`` are by host or alias.

    A capture needs few repeats: it shows what was sent, not how long it took. It has ``captured_repeats`` of
    them, but not more than are timed.
    """

    captured_repeats: int = Field(
        default=3, ge=1, le=100, description="of a capture; not more than `repeats`"
    )
    links: dict[str, Link] = {}
    guests: dict[str, GuestOverride] = {}
    nics: dict[str, NicOverride] = {}
