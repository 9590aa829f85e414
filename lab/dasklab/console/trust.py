"""``--trust-source``: whether the source that a run carries may be executed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.errors import LabError

if TYPE_CHECKING:
    from dasklab.model.experiments.experiment import Experiment
    from dasklab.model.settings.trial_settings import Workload

trust_option = click.option(
    "--trust-source",
    "trusted",
    is_flag=True,
    help="Execute the Python source of a workload that the run carries. Read it first.",
)


def require_trust(workloads: Iterable[Workload], run: Path, *, trusted: bool) -> None:
    """Refuse to execute source that a run carries, unless the user trusts it; show how it begins.

    Raises:
        LabError: the source is not trusted, or the run was unpacked from a file.
    """
    from dasklab.model.settings import trusted_source
    from dasklab.results.pack import is_unpacked

    foreign = {workload.source: workload for workload in workloads if trusted_source.is_foreign(workload)}
    for source, workload in foreign.items():
        if is_unpacked(run):
            raise LabError(
                f"{run}: {workload.name!r} came as Python source in a packed run, and is never executed",
                "to execute it all the same: unzip the file, read the source, name the folder",
            )
        if trusted and source is not None:
            click.echo(f"workload {workload.name!r}:\n{trusted_source.head(source)}", err=True)
            trusted_source.trust(source)
        try:
            trusted_source.require_trusted(workload)
        except LabError as error:
            raise LabError(f"{run}: {error.message}", error.hint) from None


def trust_experiment(experiment: Experiment, file: Path, *, trusted: bool) -> None:
    """Trust the workloads of an experiment's file that the user named, unless the file lies in a run.

    Raises:
        LabError: the file lies in a run, and its source is not trusted.
    """
    from dasklab.model.files import Campaign
    from dasklab.model.settings import trusted_source

    run = next((folder for folder in file.parents if (folder / Campaign.FILE).exists()), None)
    if run is not None:
        require_trust(workloads_of(experiment), run, trusted=trusted)
        return
    for workload in workloads_of(experiment):
        if workload.source is not None and trusted_source.is_foreign(workload):
            trusted_source.trust(workload.source)


def workloads_of(experiment: Experiment) -> list[Workload]:
    """Return the workload of each cell."""
    from dasklab.model.experiments.cells import cells
    from dasklab.running.plan.trials import requested

    return [requested("", experiment, cell).workload for cell in cells(experiment)]
