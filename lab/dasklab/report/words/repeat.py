"""The command that repeats a cell of a run."""

from __future__ import annotations

from shlex import join

from dasklab.errors import LabError
from dasklab.model.experiments import experiment
from dasklab.results.run import Run


def repeat_words(run: Run) -> str:
    """Return the words before the cell's name in the command that repeats a cell.

    An experiment that comes with dasklab is named, so that the command works on any machine. One that was
    read from a file, or run with other blocks, is in the run's folder only.
    """
    if not _comes_with_dasklab(run):
        return join(["dasklab", "reproduce", str(run.folder)])
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
