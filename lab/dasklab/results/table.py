"""The tidy table of a run's samples: a row per sample, with the columns of ``model.forms.columns``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model.experiments import cells
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.files import Configured
from dasklab.model.forms.columns import COLUMNS
from dasklab.model.settings.nic import MODELS
from dasklab.notices import warn
from dasklab.results.run import Run, Trial, find_runs, for_each_run
from dasklab.results.samples import Row, samples

FILES: dict[str, tuple[Callable[[Path], pd.DataFrame], Callable[[pd.DataFrame, Path], Any]]] = {
    ".csv": (pd.read_csv, partial(pd.DataFrame.to_csv, index=False)),
    ".parquet": (pd.read_parquet, partial(pd.DataFrame.to_parquet, index=False)),
}
SAMPLE_DEFAULTS: Row = {
    "metric": "",
    "value": 0.0,
    "sample": 0,
    "warmup": False,
    "phase": "",
    "src": "",
    "dst": "",
    "node": "",
    "start": None,
}


def load(path: str | Path) -> pd.DataFrame:
    """Return the table of a run's directory, of all runs below a directory, or of a table file.

    ``frame.attrs["factors"]`` names the columns of the factors. In the table of one run, ``attrs["guests"]``
    maps each cell, in the order of the experiment's file, to its kind of guest.

    Raises:
        LabError: there are no results at ``path``, or both measured and simulated ones.
    """
    path = Path(path)
    if path.suffix in FILES:
        return read_table(path)
    runs = find_runs(path)
    if len({run.simulated is None for run in runs}) > 1:
        raise LabError(
            f"{path}: there are measured and simulated runs, which cannot be one table",
            "name a folder with runs of one kind: simulated ones are in `simulated`",
        )
    frames = [frame for _, frame in for_each_run(runs, table)]
    joined = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    joined.attrs["factors"] = list(dict.fromkeys(f for frame in frames for f in frame.attrs["factors"]))
    return joined


def write(run: Run) -> Path:
    """Write the table of a run to samples.parquet in its directory, and return the path."""
    path = run.folder / "samples.parquet"
    write_table(table(run), path)
    return path


def read_table(path: Path) -> pd.DataFrame:
    """Read a table file, .csv or .parquet.

    Raises:
        LabError: the file is missing, damaged, or not a table of samples.
    """
    try:
        frame = FILES[path.suffix][0](path)
    except FileNotFoundError:
        raise LabError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        raise LabError(f"{path}: it cannot be read as a table: {str(error).splitlines()[0]}") from error
    if missing := [name for name in COLUMNS if name not in frame]:
        raise LabError(f"{path}: this is not a table of samples, it has no column {missing[0]}")
    return frame


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table to a file, .csv or .parquet, completely or not at all.

    Raises:
        LabError: the file has another suffix.
        OSError: the file cannot be written.
    """
    if path.suffix not in FILES:
        raise LabError(f"{path}: the table is written as {' or '.join(FILES)}")
    with atomic.replaced(path) as draft:
        FILES[path.suffix][1](frame, draft)


def table(run: Run) -> pd.DataFrame:
    """Return the table of one run, sorted by block, then by cell in the order of the experiment's file."""
    order = cells.cell_names(run.experiment)
    trials = list(_trials(run, order))
    all_changed = {ends for trial in trials for ends in _changed(trial.requested, run.setup)}
    simulated = run.simulated
    rows: list[Row] = []
    for trial in sorted(trials, key=lambda trial: (trial.requested.block, order.index(trial.requested.cell))):
        common = _trial_columns(run, trial) | {
            "simulated": simulated is not None,
            "prediction_error": simulated.prediction_error if simulated else 0.0,
        }
        changed = _changed(trial.requested, run.setup) or all_changed
        nodes = _nodes(trial.configured or Configured())
        for sample in samples(trial):
            row = common | SAMPLE_DEFAULTS | sample
            rows.append(row | {"node": _node_of(row, nodes), "tested": _is_tested(row, changed)})
    frame = _frame(rows, list(run.experiment.factors))
    kinds = {trial.requested.cell: _guests(trial.requested) for trial in trials}
    frame.attrs["guests"] = {name: kinds[name] for name in order if name in kinds}
    return frame


def _frame(rows: list[Row], factors: list[str]) -> pd.DataFrame:
    names = list(COLUMNS)
    split = names.index("baseline")
    columns = [*names[:split], *factors, *names[split:]]
    frame = pd.DataFrame(rows, columns=columns).astype({"start": float, "value": float})
    for factor in factors:
        if {type(level) for level in frame[factor]} - {int, float}:
            frame[factor] = frame[factor].astype(str)
    frame.attrs["factors"] = factors
    return frame


def _trials(run: Run, names: list[str]) -> Iterator[Trial]:
    """Yield the readable trials of cells that are in the experiment."""
    for trial in run.trials:
        if trial.requested.cell in names:
            yield trial
        else:
            warn(
                f"{trial.folder / RequestedTrial.FILE}: the experiment has no cell {trial.requested.cell!r};"
                " the trial is left out"
            )


def _trial_columns(run: Run, trial: Trial) -> Row:
    requested = trial.requested
    return {
        "experiment": requested.experiment,
        "run": run.name,
        "trial": requested.trial,
        "cell": requested.cell,
        "block": requested.block,
        "baseline": requested.baseline,
        "null": requested.null,
        "workload": requested.workload.name,
        "status": trial.result.status,
        **requested.factors,
    }


def _guests(trial: RequestedTrial) -> str:
    """Return the kind of guest that a trial's workers are, by the models of their NICs; empty if unknown."""
    models = {nic.model for host, nic in trial.nics.items() if host.startswith("worker")}
    return next((kind for kind, own in MODELS.items() if models and models <= own), "")


def _changed(trial: RequestedTrial, setup: Setup) -> set[frozenset[str]]:
    """Return what a trial changes: a host, or a host and the peer if only the way between them changes."""
    links = {frozenset({host, link.peer or host}) for host, link in trial.links.items()}
    return links | {frozenset({host}) for host, nic in trial.nics.items() if nic != setup.nics[host]}


def _is_tested(row: Row, changed: Iterable[frozenset[str]]) -> bool:
    ends = {row["src"], row["dst"]} - {""}
    return not ends or not changed or any(part <= ends for part in changed)


def _nodes(configured: Configured) -> dict[str, str]:
    """Map each host to the node that it is on, if it is known."""
    return {name: host.node for name, host in configured.hosts.items() if host.node}


def _node_of(row: Row, nodes: Mapping[str, str]) -> str:
    """Return the nodes of a probe's ends, or of all hosts for a sample that is not a probe's."""
    ends = [end for end in (row["src"], row["dst"]) if end]
    return " ".join(sorted({nodes[host] for host in ends or nodes if host in nodes}))
