"""An experiment is a file; a trial is the settings of one of its cells. This reads the one into the other.

The file holds the settings that all trials share (``workload``, ``nics``, ``links`` ...) and ``factors``.
A factor has levels, and a level overrides settings; the first level of each factor is the baseline. ``quick``
overrides the file itself, for a lab of two emulated cores. A mistake is one line: file, key, what is wrong,
what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from dasklab.errors import LabError, did_you_mean
from dasklab.model import dask_settings, engines, faults, workloads
from dasklab.model.columns import COLUMNS
from dasklab.model.engines import Engine, SparkSettings
from dasklab.model.faults import Fault
from dasklab.model.link import Link
from dasklab.model.metric import MetricName
from dasklab.model.nic import GuestOverride, NicOverride
from dasklab.model.packages import Packages
from dasklab.model.strict import Strict, first_mistake
from dasklab.model.variants import LayoutText, Scheduler, Worker
from dasklab.model.workloads import Source
from dasklab.paths import EXPERIMENTS

Scalar = bool | int | float | str


class Workload(Strict):
    """A workload by its name, with the parameters that differ from its defaults.

    ``source`` is set of one that does not come with dasklab, so that a run keeps what it computed.
    """

    name: str = "array_study"
    params: dict[str, Scalar] = {}
    source: Source | None = Field(default=None, description="Python; if not given, NAME.py beside the file")


class Probes(Strict):
    """What is measured of the links before and after the runs."""

    pings: int = Field(default=30, ge=0, le=10_000)
    interval_s: float = Field(default=0.2, ge=0.01, le=10)
    iperf_runs: int = Field(default=1, ge=0, le=100)
    iperf_s: float = Field(default=3, gt=0, le=600)
    udp: bool = False


class Shared(Strict):
    """The settings that are the same for all hosts, and the same in an experiment and in its trials."""

    bridge: Literal["learning", "flooding"] = "learning"
    workers: int = Field(default=3, ge=1, le=99)
    workload: Workload = Workload()
    runs: int = Field(default=10, ge=1, le=10_000)
    warmups: int = Field(default=1, ge=0, le=100)
    capture: bool = False
    ttl_s: int = Field(default=3600, ge=30, le=86_400)
    probes: Probes = Probes()
    dask: dict[str, Any] = Field(default={}, description="Dask's own settings, as in its YAML files")
    performance_report: bool = Field(default=False, description="Dask's own report, of a run of its own")
    py_spy: bool = Field(default=False, description="What Dask's processes do, sampled in a run of its own")
    packages: Packages = Field(default={}, description="Versions of packages instead of the pinned ones")
    scheduler: Scheduler = Scheduler()
    worker: Worker = Worker()
    layout: LayoutText | None = None
    faults: tuple[Fault, ...] = ()
    spark: SparkSettings = {}
    engine: Engine = Field(default="dask", validate_default=True, description="What computes")

    @field_validator("engine")
    @classmethod
    def _has_what_is_asked(cls, engine: Engine, info: ValidationInfo) -> Engine:
        defaults = {name: field.default for name, field in Shared.model_fields.items()}
        if wrong := engines.mistake(engine, info.data, defaults):
            raise ValueError(wrong)
        return engine

    @field_validator("dask")
    @classmethod
    def _known_to_dask(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if wrong := dask_settings.mistake(settings):
            raise ValueError(wrong)
        return settings


class Settings(Shared):
    """All that a level may override. ``links``, ``guests`` and ``nics`` are by host or alias.

    A capture answers what was said, not how long it took: it has ``captured_runs`` runs, or as many as are
    timed where these are fewer.
    """

    captured_runs: int = Field(default=3, ge=1, le=100, description="at most, of a capture")
    links: dict[str, Link] = {}
    guests: dict[str, GuestOverride] = {}
    nics: dict[str, NicOverride] = {}


class Factor(Strict):
    """What is varied: ``sets`` is a setting and ``levels`` its values, or levels have names and settings."""

    sets: str | None = None
    levels: dict[str, dict[str, Any]] | list[Scalar] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_form(self) -> Factor:
        if isinstance(self.levels, list) and self.sets is None:
            raise ValueError("a list of levels needs `sets`, the setting that they are values of")
        if isinstance(self.levels, dict) and self.sets is not None:
            raise ValueError(
                "`sets` goes with a list of levels; levels with names carry their settings themselves"
            )
        if isinstance(self.levels, list) and len(set(map(str, self.levels))) < len(self.levels):
            raise ValueError("a level is listed twice")
        return self

    def overrides(self) -> Mapping[Any, dict[str, Any]]:
        """Level -> the settings it overrides, nested as in the file."""
        if isinstance(self.levels, dict):
            return self.levels
        return {level: _nested(str(self.sets).split("."), level) for level in self.levels}


class Tolerances(Strict):
    """How far what is delivered, and the node, may be from what is asked before a trial is invalid."""

    delay_pct: float = Field(default=5, gt=0)
    delay_ms: float = Field(default=0.2, gt=0)
    rate_pct: float = Field(default=3, gt=0)
    loss_confidence: float = Field(default=0.999, gt=0.5, lt=1)
    foreign_pct: float = Field(
        default=15, ge=0, le=100, description="of the node's CPU, used by other processes during the runs"
    )
    pressure_pct: float = Field(
        default=100, ge=0, le=100, description="of the time, in which the node waited for memory or a disk"
    )
    paused_s: float = Field(
        default=2, gt=0, description="for which a process may stand still in a run, stopped or suspended"
    )
    steal_pct: float = Field(
        default=100, ge=0, le=100, description="of the node's CPU, taken by others during the runs (steal)"
    )


class Experiment(Settings):
    """The whole file. ``metrics`` maps what is measured to the 2019 study's figure beside it, or to null."""

    title: str
    question: str
    metrics: dict[MetricName, str | None] = Field(min_length=1)
    factors: dict[str, Factor] = {}
    blocks: int = Field(default=2, ge=1, le=100)
    seed: int = 2019
    run_s: float = Field(default=5, gt=0, description="one run, for the time estimate only")
    tolerances: Tolerances = Tolerances()
    quick: dict[str, Any] = {}
    workload_sources: dict[str, Source] = Field(
        default={}, description="Python of workloads of your own, by name; read from NAME.py beside the file"
    )

    def shared(self) -> dict[str, Any]:
        """The settings that all trials share, as plain data."""
        return self.model_dump(include=set(Settings.model_fields), exclude_unset=True)


def load(name: str, quick: bool = False) -> tuple[str, Experiment]:
    """The experiment of that name in lab/experiments, or of that path. Returns its name and content.

    Both the full and the quick form are checked, whichever is asked for, down to every level's settings.
    """
    path = Path(name)
    if not is_file(name):
        path = EXPERIMENTS / f"{name}.yml"
        if not path.exists():
            known = names()
            hint = did_you_mean(name, known)
            raise LabError(f"no experiment {name!r}; there are: {', '.join(known)}{hint}")
    raw = _read(path)
    full = check(raw, path.name, path.parent)
    short_form = merge({k: v for k, v in raw.items() if k != "quick"}, full.quick)
    short = check(short_form, f"{path.name}, with quick", path.parent)
    return path.stem, short if quick else full


def is_file(name: str) -> bool:
    """Whether an experiment is named by its file rather than as one that comes with the lab."""
    return Path(name).suffix in {".yml", ".yaml"}


def names() -> list[str]:
    """The experiments that come with the lab."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yml"))


def check(raw: dict[str, Any], where: str, folder: Path = EXPERIMENTS) -> Experiment:
    """Validate one form of the file and each level of each factor on top of it.

    Args:
        raw: the file's content.
        where: what a message names as the place of a mistake.
        folder: where the file is; workloads that do not come with dasklab are read there.

    Raises:
        LabError: the first mistake.
    """
    try:
        experiment = Experiment.model_validate(raw)
    except ValidationError as error:
        raise LabError(f"{where}: {first_mistake(error, Experiment)}") from error
    try:
        sources = workloads.read_sources(_workload_names(experiment), folder)
    except LabError as error:
        raise LabError(f"{where}: workload: {error.message}") from None
    if sources:
        experiment = experiment.model_copy(update={"workload_sources": sources})
    for name, factor in experiment.factors.items():
        if name in COLUMNS or not name.isidentifier():
            raise LabError(f"{where}: factors.{name}: a factor needs a name like delay_ms, and not this one")
        for level, overrides in factor.overrides().items():
            settings(experiment, [overrides], f"{where}: factors.{name}, level {level!r}")
    settings(experiment, [], where)
    return experiment


def _workload_names(experiment: Experiment) -> Iterator[str]:
    """Yield the name of each workload that a level may choose, except those whose source is in the file."""
    overrides = [o for factor in experiment.factors.values() for o in factor.overrides().values()]
    for override in [{"workload": experiment.workload.model_dump()}, *overrides]:
        match override:
            case {"workload": {"source": str()}}:
                pass
            case {"workload": {"name": str(name)}}:
                yield name


def _with_source(workload: Workload, sources: Mapping[str, str]) -> Workload:
    source = workload.source or sources.get(workload.name)
    return workload.model_copy(update={"source": source}) if source else workload


def settings(experiment: Experiment, overrides: list[dict[str, Any]], where: str) -> Settings:
    """The shared settings with some levels' overrides on top; links, guests and NICs by host, no aliases."""
    merged = experiment.shared()
    for override in overrides:
        merged = merge(merged, override)
    try:
        result = Settings.model_validate(merged)
    except ValidationError as error:
        raise LabError(f"{where}: {first_mistake(error, Settings)}") from error
    workload = _with_source(result.workload, experiment.workload_sources)
    if wrong := workloads.mistake(workload.name, workload.params, workload.source):
        raise LabError(f"{where}: workload: {wrong}")
    links = expand(result.links, result.workers, f"{where}: links")
    guests = expand(result.guests, result.workers, f"{where}: guests")
    nics = expand(result.nics, result.workers, f"{where}: nics")
    _, scheduler, *workers = hosts(result.workers)
    if wrong := faults.mistake(result.faults, scheduler, workers):
        raise LabError(f"{where}: {wrong}")
    for name, link in links.items():
        if link.peer is not None and link.peer not in hosts(result.workers):
            known = hosts(result.workers)
            allowed = f"{', '.join(known)}{did_you_mean(link.peer, known)}"
            raise LabError(f"{where}: links.{name}.peer: no host {link.peer!r}; allowed: {allowed}")
    return result.model_copy(update={"workload": workload, "links": links, "guests": guests, "nics": nics})


def hosts(workers: int) -> list[str]:
    """The lab's hosts as the inventory names them."""
    return ["client", "scheduler", *(f"worker-{i + 1}" for i in range(workers))]


S = TypeVar("S", bound=Strict)


def expand(by_host: Mapping[str, S], workers: int, where: str) -> dict[str, S]:
    """Replace the aliases ``cluster`` (scheduler and workers) and ``workers`` by hosts.

    What is said of a host more closely is laid over what is said of it as one of many, key by key.
    """
    every = hosts(workers)
    aliases = {"cluster": every[1:], "workers": every[2:]}
    for name in by_host:
        if name not in aliases and name not in every:
            known = [*every, *aliases]
            hint = did_you_mean(name, known)
            raise LabError(f"{where}.{name}: no such host; allowed: {', '.join(known)}{hint}")
    order = ["cluster", "workers", *every]
    expanded: dict[str, S] = {}
    for name in sorted(by_host, key=order.index):
        for host in aliases.get(name, [name]):
            said = by_host[name].model_dump(exclude_unset=True)
            under = expanded[host].model_dump(exclude_unset=True) if host in expanded else {}
            expanded[host] = type(by_host[name]).model_validate({**under, **said})
    return expanded


def merge(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; all else is replaced, and so are ``levels`` and one workload by another."""
    result = dict(base)
    for key, value in override.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        whole = key == "levels" or (key == "workload" and both and "name" in value)
        result[key] = merge(result[key], value) if both and not whole else value
    return result


def json_schema() -> str:
    """The JSON Schema of an experiment file, for editors; kept in lab/dasklab/experiments/schema.json."""
    return json.dumps(Experiment.model_json_schema(), indent=1) + "\n"


def _nested(path: list[str], value: Scalar) -> dict[str, Any]:
    inner: Any = value
    for key in reversed(path):
        inner = {key: inner}
    return dict(inner)


class _Loader(yaml.CSafeLoader):
    """YAML that refuses a key given twice instead of keeping the last."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be a text or a number", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is given twice", key_node.start_mark
            )
        seen.add(key)
    return dict(loader.construct_mapping(node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path.name}: not UTF-8: byte {error.object[error.start]:#04x} at {error.start}"
        ) from error
    except yaml.reader.ReaderError as error:
        raise LabError(f"{path.name}: not YAML: {error.reason} at {error.position}") from error
    except RecursionError as error:
        raise LabError(f"{path.name}: it is nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise LabError(f"{path.name}, line {line}: {error.problem}") from error
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise LabError(f"{path.name}: an experiment is a mapping of keys to values, this is not")
    return raw


if __name__ == "__main__":
    print(json_schema(), end="")
