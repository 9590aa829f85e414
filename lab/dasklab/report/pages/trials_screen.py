"""The trials of a section: rows and pages, those that left the statistics, and what a repetition needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import join, quote
from typing import Any

from dasklab.errors import LabError
from dasklab.model.experiments import experiment
from dasklab.model.files import Hosts
from dasklab.report.trials.trial_rows import TrialRow, by_cell
from dasklab.report.words.notes import InvalidTrials, invalid_trials
from dasklab.results.run import Run


@dataclass(frozen=True)
class TrialsScreen:
    """All trials of a run.

    Attributes:
        rows: one for each, in the order in which they ran.
        metric: title of the metric in the rows.
        share_pct: of the wall time that measuring took.
        overhead_s: mean time of a trial that was not measuring.
    """

    run: Run
    rows: list[TrialRow]
    metric: str
    invalid: list[InvalidTrials]
    identity: Mapping[str, Any]
    hosts: Mapping[str, Any]
    share_pct: float
    overhead_s: float

    @property
    def of_cell(self) -> dict[str, list[TrialRow]]:
        """The rows of each cell."""
        return by_cell(self.rows)

    def command_to_repeat(self, cell: str) -> str:
        """Return the command that repeats a cell."""
        return f"{repeat_words(self.run)} {quote(cell)}"


def trials_screen(
    run: Run, rows: list[TrialRow], metric: str, identity: Mapping[str, Any], hosts: Hosts | None
) -> TrialsScreen:
    """Describe the trials of a run."""
    attempts = [trial.attempt for trial in run.trials]
    measuring_s, wall_s = sum(a.measuring_s for a in attempts), sum(a.wall_s for a in attempts)
    return TrialsScreen(
        run=run,
        rows=rows,
        metric=metric,
        invalid=invalid_trials([trial.result for trial in run.trials]),
        identity=identity,
        hosts=hosts.model_dump(exclude_none=True) if hosts else {},
        share_pct=100 * measuring_s / wall_s if wall_s else 0,
        overhead_s=(wall_s - measuring_s) / len(attempts),
    )


def repeat_words(run: Run) -> str:
    """Return the words before the cell's name in the command that repeats a cell.

    An experiment that comes with dasklab is named, so that the command works on any machine. One that was
    read from a file, or run with other blocks, is in the run's folder only.
    """
    if not _comes_with_dasklab(run):
        return join(["dasklab", "run", str(run), "--only"])
    options = ["--quick"] * run.document.quick
    if run.simulated:
        options += ["--simulate", "--from", run.simulated.origin]
    return join(["dasklab", "run", run.document.name, *options, "--only"])


def _comes_with_dasklab(run: Run) -> bool:
    document = run.document
    if document.name not in experiment.names():
        return False
    try:
        return experiment.load(document.name, document.quick)[1] == run.experiment
    except LabError:  # of another version
        return False
