"""Read what earlier formats stored: translate their names into those of the current format.

Each format changed names only. ``KEYS`` lists, for each document, what the next format calls a key, by the
path to it; ``*`` stands for every entry of a list or a mapping. Metrics and settings of an experiment have
names of their own, which also appear in tables of samples and in experiments' files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dasklab.errors import LabError
from dasklab.model.forms.document import FORMAT

# Of format 3: one timed computation of a trial was called a run.
SETTINGS_OF_3 = {"runs": "repeats", "captured_runs": "captured_repeats", "run_s": "repeat_s"}
# Where an experiment's file may have a setting.
SETTING_PLACES = ("", "quick.", "factors.*.levels.*.", "quick.factors.*.levels.*.")
EXPERIMENT_OF_3 = {f"{place}{old}": new for place in SETTING_PLACES for old, new in SETTINGS_OF_3.items()}
KEYS: dict[int, dict[str, dict[str, str]]] = {
    2: {
        "trial.json": {
            "scheduler.occupant": "variant",
            "worker.occupant": "variant",
            "seat.occupant": "variant",
            "seat": "resolved_scheduler",
        },
        "experiment.json": {"setup.simulated.missed": "prediction_error"},
        "timings.json": {"samples.*.got": "answer", "check.got": "answer"},
        "capture.json": {"timings.samples.*.got": "answer", "timings.check.got": "answer"},
        "measured.json": {"rtt.*.sent": "pings"},
        "hosts.json": {"hypervisor.waited_pct": "pressure_pct"},
        "faults.json": {"hosts.*.found": "state"},
        "calibration.json": {"tasks.*.seen": "samples", "free_mbit": "uncapped_mbit"},
        "calibrations.json": {
            "known.*.calibrations.*.tasks.*.seen": "samples",
            "known.*.calibrations.*.free_mbit": "uncapped_mbit",
            "known": "workloads",
        },
        "simulation.json": {"outcomes.*.seen.*.found": "state", "outcomes.*.seen": "faults"},
    },
    3: {
        "trial.json": SETTINGS_OF_3,
        "experiment.json": {f"experiment.{path}": name for path, name in EXPERIMENT_OF_3.items()},
        "timings.json": {"samples.*.run": "repeat"},
        "capture.json": {"timings.samples.*.run": "repeat"},
        "simulation.json": {"outcomes.*.runs": "repeats"},
    },
}
EARLIER = tuple(KEYS)
FILES = {
    "delivered.json": "measured.json",
    "inside.json": "records.json",
    "inside-capture.json": "capture-records.json",
}
METRICS = {
    "node_stolen_pct": "node_steal_pct",
    "node_memory_waited_pct": "node_memory_pressure_pct",
    "node_disk_waited_pct": "node_disk_pressure_pct",
    "resent_pct": "retransmitted_pct",
}
SETTINGS = METRICS | {"occupant": "variant", "stolen_pct": "steal_pct", "waited_pct": "pressure_pct"}
SETTING_PATHS = {"scheduler.occupant": "scheduler.variant", "worker.occupant": "worker.variant"}
RENAMED_SAMPLE_COLUMNS = {"missed": "prediction_error"}


def translate(file: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a document of an earlier format as the current format names it.

    Args:
        file: the document's current file name.
        content: the parsed JSON; it is not changed.
    """
    earliest = content["schema"]
    translated: dict[str, Any] = _with_format(content)
    for number in range(earliest, FORMAT):
        _rename(translated, KEYS[number].get(file, {}))
    if file == "experiment.json":
        _rename_what_factors_set(translated.get("experiment"))
    if earliest == 2:
        if file == "experiment.json" and "experiment" in translated:
            translated["experiment"] = _settings(translated["experiment"])
        if file == "attempt.json":
            translated["files"] = [FILES.get(name, name) for name in translated.get("files", ())]
    return translated


def translate_experiment(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the content of an experiment's file, with settings as they are called today.

    Raises:
        LabError: the file has a setting under both names.
    """
    translated: dict[str, Any] = _with_format(content)
    for path, name in EXPERIMENT_OF_3.items():
        *parents, key = path.split(".")
        if any(key in parent and name in parent for parent in _at(translated, parents)):
            raise LabError(
                f"{where}: {path}: the earlier name of `{name}`, which is set as well; keep `{name}`"
            )
    _rename(translated, EXPERIMENT_OF_3)
    _rename_what_factors_set(translated)
    return translated


def _rename_what_factors_set(experiment: Any) -> None:
    for place in (["factors", "*"], ["quick", "factors", "*"]):
        for factor in _at(experiment, place):
            if isinstance(setting := factor.get("sets"), str):
                factor["sets"] = SETTINGS_OF_3.get(setting, setting)


def _rename(content: Any, names: Mapping[str, str]) -> None:
    for path, name in names.items():
        *parents, key = path.split(".")
        for parent in _at(content, parents):
            if key in parent:
                parent[name] = parent.pop(key)


def _with_format(value: Any) -> Any:
    """Copy a document, with the current format in it and in the documents that it contains."""
    if isinstance(value, Mapping):
        copy = {key: _with_format(inner) for key, inner in value.items()}
        return copy | {"schema": FORMAT} if copy.get("schema") in EARLIER else copy
    return [_with_format(inner) for inner in value] if isinstance(value, list) else value


def _at(value: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the mappings at a path; nothing where the path does not exist."""
    if not path:
        if isinstance(value, dict):
            yield value
        return
    if path[0] == "*":
        entries: Iterable[Any] = ()
        if isinstance(value, dict | list):
            entries = value.values() if isinstance(value, dict) else value
    else:
        entries = (value[path[0]],) if isinstance(value, dict) and path[0] in value else ()
    for entry in list(entries):
        yield from _at(entry, path[1:])


def _settings(value: Any) -> Any:
    """Translate an experiment: the keys of its settings wherever they are, and what its factors set."""
    if isinstance(value, list):
        return [_settings(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    translated = {SETTINGS.get(key, key): _settings(inner) for key, inner in value.items()}
    if isinstance(path := translated.get("sets"), str):
        translated["sets"] = SETTING_PATHS.get(path, path)
    return translated
