"""The command that repeats a cell of a run."""

from __future__ import annotations

from pathlib import Path
from shlex import join

from dasklab.errors import LabError
from dasklab.model import experiment
from dasklab.model.files import Campaign
from dasklab.results.storage import store


def repeat_words(document: Campaign, run: Path, simulated: str | None) -> str:
    """Return the words before the cell's name in the command that repeats a cell.

    An experiment that comes with dasklab is named, so that the command works on any machine. One that was
    read from a file, or run with other blocks, is in the run's folder only.
    """
    if not _comes_with_dasklab(document):
        return join(["dasklab", "reproduce", str(run)])
    options = ["--quick"] * document.quick + (["--simulate", "--from", simulated] if simulated else [])
    return join(["dasklab", "run", document.name, *options, "--only"])


def _comes_with_dasklab(document: Campaign) -> bool:
    if document.name not in experiment.names():
        return False
    try:
        return experiment.load(document.name, document.quick)[1] == store.experiment(document)
    except LabError:  # of another version
        return False
