"""``--trust-source``: whether the code that a run carries or names may be executed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.errors import LabError
from dasklab.terminal import echo

if TYPE_CHECKING:
    from dasklab.model.experiments.experiment import Experiment
    from dasklab.model.settings.trial_settings import SharedSettings

trust_option = click.option(
    "--trust-source",
    "trusted",
    is_flag=True,
    help="Execute what the run carries: a workload's source, a scheduler's command, settings that name code."
    " Read it first.",
)


def require_trust(requested: Iterable[SharedSettings], run: Path, *, trusted: bool) -> None:
    """Refuse to execute what a run carries, unless the user trusts it; show how it begins.

    Args:
        requested: the trials, or the settings of cells, that would be executed.

    Raises:
        LabError: something is not trusted, or the run was unpacked from a file.
    """
    from dasklab.model.experiments import foreign_code
    from dasklab.results.pack import is_unpacked

    codes = {code.text: code for settings in requested for code in foreign_code.code_of(settings)}
    for code in codes.values():
        if is_unpacked(run):
            raise LabError(
                f"{run}: {code.what} came in a packed run, and is never executed",
                f"to execute it all the same: unzip the file, read it, name the folder\n{code.head}",
            )
        if trusted:
            echo(f"{code.what}:\n{code.head}", err=True)
            code.trust()
        try:
            foreign_code.require_trusted([code])
        except LabError as error:
            raise LabError(f"{run}: {error.message}", error.hint) from None


def trust_experiment(experiment: Experiment, file: Path, *, trusted: bool) -> None:
    """Trust an experiment's file that the user named, unless the file lies in a run.

    Raises:
        LabError: the file lies in a run, and what it carries is not trusted.
    """
    from dasklab.model.experiments import foreign_code
    from dasklab.model.files import Campaign

    run = next((folder for folder in file.parents if (folder / Campaign.FILE).exists()), None)
    if run is not None:
        require_trust(cells_of(experiment), run, trusted=trusted)
        return
    for settings in cells_of(experiment):
        for code in foreign_code.code_of(settings):
            code.trust()


def cells_of(experiment: Experiment) -> list[SharedSettings]:
    """Return the settings of each cell."""
    from dasklab.model.experiments.cells import cells
    from dasklab.running.plan.trials import requested

    return [requested("", experiment, cell) for cell in cells(experiment)]
