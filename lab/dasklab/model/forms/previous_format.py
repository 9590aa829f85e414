"""Read what the previous format (2) stored: translate its names into those of the current format (3).

Format 3 changed names only. ``KEYS`` lists them for each document, by the path to the key; ``*`` stands for
every entry of a list or a mapping. Metrics and settings of an experiment have names of their own, which also
appear in tables of samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dasklab.model.forms.document import FORMAT

PREVIOUS = 2

KEYS: dict[str, dict[str, str]] = {
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
}
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
COLUMNS = {"missed": "prediction_error"}  # of a table of samples


def translate(file: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a document of format 2 as format 3 names it.

    Args:
        file: the document's current file name.
        content: the parsed JSON; it is not changed.
    """
    translated: dict[str, Any] = _with_format(content)
    for path, name in KEYS.get(file, {}).items():
        *parents, key = path.split(".")
        for parent in _at(translated, parents):
            if key in parent:
                parent[name] = parent.pop(key)
    if file == "experiment.json" and "experiment" in translated:
        translated["experiment"] = _settings(translated["experiment"])
    if file == "attempt.json":
        translated["files"] = [FILES.get(name, name) for name in translated.get("files", ())]
    return translated


def _with_format(value: Any) -> Any:
    """Copy a document, with the current format in it and in the documents that it contains."""
    if isinstance(value, Mapping):
        copy = {key: _with_format(inner) for key, inner in value.items()}
        return copy | {"schema": FORMAT} if copy.get("schema") == PREVIOUS else copy
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
