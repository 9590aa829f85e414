"""Write a history as the files that ``asv publish`` turns into pages; asv itself is not needed.

asv's axis is commits. So a repository of its own gets an empty commit with a tag for each version of Dask,
dated by the version's year and month; writing it again gives the same commits.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model.settings.metric import METRICS
from dasklab.model.settings.packages import version_key
from dasklab.results.history.history import typical_of

ENVIRONMENT = "dasklab"
FORMAT = 2  # asv's format of all files except machine.json and asv.conf.json
MACHINE_FORMAT = CONF_FORMAT = 1
COLUMNS = (
    *("result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"),
    *("stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"),
)


def write(history: pd.DataFrame, folder: Path) -> None:
    """Write all that ``asv publish`` reads into a folder, which may hold other files too.

    Raises:
        LabError: git fails.
        OSError: the folder cannot be written.
    """
    with atomic.filled(folder) as draft:
        _write(history, draft)


def _write(history: pd.DataFrame, folder: Path) -> None:
    samples = history[~history.null]
    versions = sorted(samples.dask.unique(), key=version_key)
    commits = dict(zip(versions, _repository(folder / "dask", versions), strict=True))
    levels = _levels(samples)
    _write_json(folder / "asv.conf.json", _conf())
    _write_json(folder / "results" / "benchmarks.json", {**_benchmarks(levels), "version": FORMAT})
    for machine, of_machine in samples.groupby("machine"):
        description = {"machine": str(machine), "version": MACHINE_FORMAT}
        _write_json(folder / "results" / str(machine) / "machine.json", description)
        for version, of_version in of_machine.groupby("dask"):
            commit = commits[str(version)]
            results = _results(of_version, commit, str(version), str(machine), levels)
            _write_json(folder / "results" / str(machine) / f"{commit[:8]}-{ENVIRONMENT}.json", results)


def release_date(version: str) -> datetime:
    """Return roughly when a version was released: Dask's versions are year, month and a number."""
    year, month, *rest = (*version_key(version), 1, 0)
    return datetime(year, min(max(month, 1), 12), 1, tzinfo=timezone.utc) + timedelta(days=min(rest[0], 27))


def _repository(folder: Path, versions: list[str]) -> list[str]:
    """Make a commit with a tag for each version, oldest first, and return the commits."""
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    commits: list[str] = []
    empty = _git(folder, "hash-object", "-t", "tree", "-w", "/dev/null")
    for version in versions:
        date = release_date(version).isoformat()
        parent = ["-p", commits[-1]] if commits else []
        commits.append(_git(folder, "commit-tree", empty, *parent, "-m", f"Dask {version}", date=date))
        _git(folder, "tag", "--force", version, commits[-1])
    _git(folder, "update-ref", "refs/heads/main", commits[-1])
    return commits


def _git(folder: Path, *words: str, date: str = "") -> str:
    author = {f"GIT_{role}_{key}": "dasklab" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    result = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**os.environ, **author, **dates},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise LabError(f"git {words[0]} failed: {result.stderr.strip() or result.returncode}")
    return result.stdout.strip()


def _conf() -> dict[str, Any]:
    folders = {"results_dir": "results", "html_dir": "html", "env_dir": "env"}
    repository = {"repo": "dask", "dvcs": "git", "branches": ["main"]}
    page = {"project": "Dask, measured by dasklab", "project_url": "", "show_commit_url": "#"}
    return {"version": CONF_FORMAT, **page, **repository, **folders, "environment_type": "existing"}


def _levels(samples: pd.DataFrame) -> dict[str, dict[str, list[Any]]]:
    """Map each benchmark to its parameters, and each of these to all its values in order of appearance."""
    levels: dict[str, dict[str, list[Any]]] = {}
    for row in samples[["benchmark", "params"]].drop_duplicates().itertuples():
        params = levels.setdefault(str(row.benchmark), {})
        for name, value in json.loads(str(row.params)).items():
            values = params.setdefault(name, [])
            values += [] if value in values else [value]
    return levels


def _benchmarks(levels: Mapping[str, dict[str, list[Any]]]) -> dict[str, Any]:
    """Describe each benchmark: a number to track, with its unit and parameters."""
    return {
        name: {
            "name": name,
            "pretty_name": name,
            "code": "",
            "type": "track",
            "unit": METRICS[name.rpartition(".")[2]].unit,
            "param_names": list(params),
            "params": [[repr(value) for value in values] for values in params.values()],
            "timeout": 60,
            "version": "1",
        }
        for name, params in levels.items()
    }


def _results(
    samples: pd.DataFrame, commit: str, version: str, machine: str, levels: Mapping[str, dict[str, list[Any]]]
) -> dict[str, Any]:
    """Return the results of one version on one machine."""
    return {
        "commit_hash": commit,
        "env_name": ENVIRONMENT,
        "date": round(release_date(version).timestamp() * 1000),
        "params": {"machine": machine},
        "python": "",
        "requirements": {},
        "env_vars": {},
        "result_columns": list(COLUMNS),
        "results": {
            str(name): _row(of_benchmark, levels[str(name)])
            for name, of_benchmark in samples.groupby("benchmark")
        },
        "durations": {},
        "version": FORMAT,
    }


def _row(samples: pd.DataFrame, params: dict[str, list[Any]]) -> list[Any]:
    """Return one benchmark's results: for each column a list with an entry per combination of parameters."""
    by_cell = dict(list(samples.groupby("params")))
    cells = [by_cell.get(json.dumps(combination)) for combination in _combinations(params)]
    texts = [[repr(value) for value in values] for values in params.values()]
    columns = zip(*(_statistics(cell) for cell in cells), strict=True)
    result, low, high, q25, q75, number = map(list, columns)
    return [result, texts, "1", None, None, low, high, q25, q75, [1] * len(number), number]


def _statistics(cell: pd.DataFrame | None) -> tuple[Any, ...]:
    """Return value, interval, quartiles and number of samples; None for each if nothing was measured."""
    if cell is None:
        return (None,) * 6
    middle, values = typical_of(cell), cell.value.to_numpy(dtype=float)
    ends = [None if np.isnan(end) else end for end in (middle.low, middle.high)]
    return middle.value, *ends, *np.quantile(values, (0.25, 0.75)).tolist(), len(values)


def _combinations(params: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield all combinations, the last parameter varying fastest, as asv counts them."""
    combinations: list[dict[str, Any]] = [{}]
    for name, values in params.items():
        combinations = [{**combination, name: value} for combination in combinations for value in values]
    yield from combinations


def _write_json(path: Path, content: dict[str, Any]) -> None:
    atomic.write_text(path, json.dumps(content, indent=1) + "\n")
