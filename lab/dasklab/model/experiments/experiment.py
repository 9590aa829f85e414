"""An experiment's file: the question, the metrics, the factors, and the settings that all trials share.

A factor has levels, and a level overrides settings; the first level of each factor is the baseline's.
``quick`` overrides the file itself, for a lab of two emulated cores. A mistake is reported in one line: file,
key, what is wrong, what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from dasklab.errors import LabError, did_you_mean
from dasklab.model.forms.columns import COLUMNS
from dasklab.model.forms.strict import Strict, first_mistake
from dasklab.model.forms.yaml_file import read_mapping
from dasklab.model.settings import faults, workloads
from dasklab.model.settings.hosts import expand_aliases, host_names
from dasklab.model.settings.metric import MetricName
from dasklab.model.settings.trial_settings import Scalar, Settings, Workload
from dasklab.model.settings.workloads import Source
from dasklab.paths import EXPERIMENTS


class Factor(Strict):
    """What is varied: the setting ``sets`` with a list of values, or levels with names and settings."""

    sets: str | None = None
    levels: dict[str, dict[str, Any]] | list[Scalar] = Field(min_length=1)

    @model_validator(mode="after")
    def _list_or_names(self) -> Factor:
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
        """Map each level to the settings that it overrides, nested as in the file."""
        if isinstance(self.levels, dict):
            return self.levels
        return {level: _nested(str(self.sets).split("."), level) for level in self.levels}


class Tolerances(Strict):
    """How far the measured link may differ from the requested one, and how busy the node may be.

    A trial beyond a tolerance is invalid.
    """

    delay_pct: float = Field(default=5, gt=0)
    delay_ms: float = Field(default=0.2, gt=0)
    rate_pct: float = Field(default=3, gt=0)
    loss_confidence: float = Field(default=0.999, gt=0.5, lt=1)
    foreign_pct: float = Field(
        default=15, ge=0, le=100, description="share of the node's CPU that processes outside the lab used"
    )
    pressure_pct: float = Field(
        default=100, ge=0, le=100, description="share of time in which the node waited for memory or a disk"
    )
    paused_s: float = Field(
        default=2, gt=0, description="how long a process may be stopped or suspended in a repeat"
    )
    steal_pct: float = Field(
        default=100, ge=0, le=100, description="share of the node's CPU that other virtual machines took"
    )


class Experiment(Settings):
    """The whole file. ``metrics`` maps a metric to the 2019 study's figure to compare with, or to null."""

    title: str
    question: str
    metrics: dict[MetricName, str | None] = Field(min_length=1)
    factors: dict[str, Factor] = {}
    blocks: int = Field(default=2, ge=1, le=100)
    seed: int = 2019
    repeat_s: float = Field(default=5, gt=0, description="duration of one repeat, for the time estimate only")
    tolerances: Tolerances = Tolerances()
    quick: dict[str, Any] = {}
    workload_sources: dict[str, Source] = Field(
        default={}, description="Python of your own workloads, by name; read from NAME.py beside the file"
    )

    def shared(self) -> dict[str, Any]:
        """Return the settings that all trials share, as plain data."""
        return self.model_dump(include=set(Settings.model_fields), exclude_unset=True)


def load(name: str, quick: bool = False) -> tuple[str, Experiment]:
    """Load an experiment of lab/dasklab/experiments by name, or any file by its path.

    The full and the quick form are both checked, whichever is requested, with the settings of every level.

    Returns:
        The name and the content.

    Raises:
        LabError: there is no such experiment, or the file has a mistake.
    """
    path = Path(name)
    if not is_file(name):
        path = EXPERIMENTS / f"{name}.yml"
        if not path.exists():
            raise LabError(
                f"no experiment {name!r}{did_you_mean(name, names())}",
                "`dasklab run` lists all; a file of your own is named by its path, with .yml",
            )
    raw = read_mapping(path)
    full = check(raw, path.name, path.parent)
    short_form = merge({k: v for k, v in raw.items() if k != "quick"}, full.quick)
    short = check(short_form, f"{path.name}, with quick", path.parent)
    return path.stem, short if quick else full


def is_file(name: str) -> bool:
    """Whether an experiment is named by its path."""
    return Path(name).suffix in {".yml", ".yaml"}


def names() -> list[str]:
    """Return the names of the experiments of lab/dasklab/experiments."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yml"))


def check(raw: dict[str, Any], where: str, folder: Path = EXPERIMENTS) -> Experiment:
    """Validate a file's content, and each level of each factor on top of it.

    Args:
        raw: the content.
        where: the place of a mistake, for its line.
        folder: where the file is; workloads that do not come with dasklab are read there.

    Raises:
        LabError: there is a mistake.
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
    settings(experiment, [], where)
    for name, factor in experiment.factors.items():
        if name in COLUMNS or not name.isidentifier():
            raise LabError(
                f"{where}: factors.{name}: the name of a factor is an identifier, and not the name of a"
                " column of the table of samples"
            )
        for level, overrides in factor.overrides().items():
            settings(experiment, [overrides], f"{where}: factors.{name}, level {level!r}")
    return experiment


def settings(experiment: Experiment, overrides: list[dict[str, Any]], where: str) -> Settings:
    """Return the shared settings with the overrides of some levels; links, guests and NICs are by host.

    Raises:
        LabError: the settings are invalid; ``where`` names the place in its line.
    """
    merged = experiment.shared()
    for override in overrides:
        merged = merge(merged, override)
    try:
        result = Settings.model_validate(merged)
    except ValidationError as error:
        raise LabError(f"{where}: {first_mistake(error, Settings)}") from error
    workload = _with_source(result.workload, experiment.workload_sources)
    if mistake := workloads.find_mistake(workload.name, workload.params, workload.source):
        raise LabError(f"{where}: workload: {mistake}")
    links = expand_aliases(result.links, result.workers, f"{where}: links")
    guests = expand_aliases(result.guests, result.workers, f"{where}: guests")
    nics = expand_aliases(result.nics, result.workers, f"{where}: nics")
    hosts = host_names(result.workers)
    _, scheduler, *workers = hosts
    if mistake := faults.find_mistake(result.faults, scheduler, workers):
        raise LabError(f"{where}: {mistake}")
    for name, link in links.items():
        if link.peer is not None and link.peer not in hosts:
            allowed = f"{', '.join(hosts)}{did_you_mean(link.peer, hosts)}"
            raise LabError(f"{where}: links.{name}.peer: no host {link.peer!r}; allowed: {allowed}")
    return result.model_copy(update={"workload": workload, "links": links, "guests": guests, "nics": nics})


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


def merge(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with an override.

    Mappings merge key by key. Everything else is replaced, as are ``levels``, and a workload by another one.
    """
    result = dict(base)
    for key, value in override.items():
        are_mappings = isinstance(value, dict) and isinstance(result.get(key), dict)
        replaces = key == "levels" or (key == "workload" and are_mappings and "name" in value)
        result[key] = merge(result[key], value) if are_mappings and not replaces else value
    return result


def json_schema() -> str:
    """Return the JSON Schema of an experiment's file, for editors (``make schema`` writes it)."""
    return json.dumps(Experiment.model_json_schema(), indent=1) + "\n"


def _nested(path: list[str], value: Scalar) -> dict[str, Any]:
    inner: Any = value
    for key in reversed(path):
        inner = {key: inner}
    return dict(inner)


if __name__ == "__main__":
    print(json_schema(), end="")
