"""A history as the files that ``asv publish`` makes pages of; asv itself is not needed to write them.

asv's axis is commits: a repository of its own gets an empty one with a tag for each version of Dask, dated by
what the version says of the calendar, so that writing it again gives the same.
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
from dasklab.model.metric import METRICS
from dasklab.model.packages import version_key
from dasklab.results.history.history import typical
from dasklab.results.statistics.measures import Interval

ENVIRONMENT = "dasklab"
FORM = 2  # asv's, of all its files but machine.json and asv.conf.json
MACHINE_FORM = CONF_FORM = 1
COLUMNS = (
    *("result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"),
    *("stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"),
)


def write(history: pd.DataFrame, folder: Path) -> None:
    """Write all that ``asv publish`` reads into a folder, beside what else is there.

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
    _put(folder / "asv.conf.json", _conf())
    _put(folder / "results" / "benchmarks.json", {**_benchmarks(samples), "version": FORM})
    for machine, measured in samples.groupby("machine"):
        about = {"machine": str(machine), "version": MACHINE_FORM}
        _put(folder / "results" / str(machine) / "machine.json", about)
        for version, found in measured.groupby("dask"):
            commit = commits[str(version)]
            name = f"{commit[:8]}-{ENVIRONMENT}.json"
            said = _results(found, commit, str(version), str(machine), _lists(samples))
            _put(folder / "results" / str(machine) / name, said)


def released(version: str) -> datetime:
    """About when a version appeared: Dask's versions are years and months, and a number."""
    year, month, *rest = (*version_key(version), 1, 0)
    return datetime(year, min(max(month, 1), 12), 1, tzinfo=timezone.utc) + timedelta(days=min(rest[0], 27))


def _repository(folder: Path, versions: list[str]) -> list[str]:
    """A commit with a tag for each version, oldest first; returns the commits."""
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    commits: list[str] = []
    empty = _git(folder, "hash-object", "-t", "tree", "-w", "/dev/null")
    for version in versions:
        date = released(version).isoformat()
        above = ["-p", commits[-1]] if commits else []
        commits.append(_git(folder, "commit-tree", empty, *above, "-m", f"Dask {version}", date=date))
        _git(folder, "tag", "--force", version, commits[-1])
    _git(folder, "update-ref", "refs/heads/main", commits[-1])
    return commits


def _git(folder: Path, *words: str, date: str = "") -> str:
    who = {f"GIT_{role}_{what}": "dasklab" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    when = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**os.environ, **who, **when},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"git {words[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def _conf() -> dict[str, Any]:
    places = {"results_dir": "results", "html_dir": "html", "env_dir": "env"}
    repository = {"repo": "dask", "dvcs": "git", "branches": ["main"]}
    page = {"project": "Dask, measured by dasklab", "project_url": "", "show_commit_url": "#"}
    return {"version": CONF_FORM, **page, **repository, **places, "environment_type": "existing"}


def _lists(samples: pd.DataFrame) -> dict[str, dict[str, list[Any]]]:
    """Benchmark -> parameter -> all its values, in the order in which they came."""
    found: dict[str, dict[str, list[Any]]] = {}
    for row in samples[["benchmark", "params"]].drop_duplicates().itertuples():
        for name, value in json.loads(str(row.params)).items():
            values = found.setdefault(str(row.benchmark), {}).setdefault(name, [])
            values += [] if value in values else [value]
        found.setdefault(str(row.benchmark), {})
    return found


def _benchmarks(samples: pd.DataFrame) -> dict[str, Any]:
    """What each benchmark is: a number to track, with its unit and parameters."""
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
        for name, params in _lists(samples).items()
    }


def _results(
    found: pd.DataFrame, commit: str, version: str, machine: str, lists: Mapping[str, dict[str, list[Any]]]
) -> dict[str, Any]:
    """One version's results on one machine."""
    return {
        "commit_hash": commit,
        "env_name": ENVIRONMENT,
        "date": round(released(version).timestamp() * 1000),
        "params": {"machine": machine},
        "python": "",
        "requirements": {},
        "env_vars": {},
        "result_columns": list(COLUMNS),
        "results": {
            str(name): _row(samples, lists[str(name)]) for name, samples in found.groupby("benchmark")
        },
        "durations": {},
        "version": FORM,
    }


def _row(samples: pd.DataFrame, params: dict[str, list[Any]]) -> list[Any]:
    """One benchmark's results: of each column a list with an entry for each combination of parameters."""
    by_cell = dict(list(samples.groupby("params")))
    cells = [by_cell.get(json.dumps(each)) for each in _combinations(params)]
    told = [None if cell is None else (typical(cell), cell.value.to_numpy(dtype=float)) for cell in cells]
    listed = [[repr(value) for value in values] for values in params.values()]
    columns = zip(*(_stats(each) for each in told), strict=True)
    result, low, high, q25, q75, number = map(list, columns)
    return [result, listed, "1", None, None, low, high, q25, q75, [1] * len(number), number]


def _stats(found: tuple[Interval, Any] | None) -> tuple[Any, ...]:
    if found is None:
        return (None,) * 6
    middle, values = found
    ends = [None if np.isnan(end) else end for end in (middle.low, middle.high)]
    return middle.value, *ends, *np.quantile(values, (0.25, 0.75)).tolist(), len(values)


def _combinations(params: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """All combinations, the last parameter running fastest, as asv counts them."""
    combined: list[dict[str, Any]] = [{}]
    for name, values in params.items():
        combined = [{**each, name: value} for each in combined for value in values]
    yield from combined


def _put(path: Path, content: dict[str, Any]) -> None:
    atomic.write_text(path, json.dumps(content, indent=1) + "\n")
