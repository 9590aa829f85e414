"""``dasklab reproduce``: a cell of a stored run once more, from its seed; old and new beside each other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.commands.exits import HELP
from dasklab.commands.options import SEEDS, inventory_option, new_results_option
from dasklab.errors import LabError, did_you_mean
from dasklab.path_types import UserPath
from dasklab.terminal import print_table

if TYPE_CHECKING:
    from dasklab.model.files import Campaign

HEAD = ("trial", "what", "old", "new", "")


@click.command(epilog=HELP)
@click.argument("old", metavar="RUN", type=UserPath(exists=True, file_okay=False))
@click.argument("cell", metavar="CELL")
@click.option(
    "--simulate/--measure",
    "simulate",
    default=None,
    help="In virtual time, or in the lab; as the run was if not said.",
)
@new_results_option
@inventory_option
def reproduce(old: Path, cell: str, simulate: bool | None, root: Path, inventory: Path) -> None:
    """Run a cell of a stored run once more, from its seed; tell old beside new.

    Settings and faults are those of RUN; baseline and null trial come along, as with --only. What was
    simulated must come out the same to the last digit, what was measured within what chance does.

    \b
    dasklab reproduce RUN fault=kill               as it was, simulated or in the lab
    dasklab reproduce RUN fault=kill --simulate    a measured cell with the costs that RUN measured
    """
    from dasklab.commands.outcome import exit_status
    from dasklab.model.files import Result
    from dasklab.results.storage import store

    begun = store.read_run(old)
    done = dict.fromkeys(store.need(Result, trial).cell for trial in store.finished(old))
    if cell not in done:
        allowed = f"{'; '.join(done) or 'none'}{did_you_mean(cell, done)}"
        raise LabError(f"{old}: no trial of a cell {cell!r} was done; allowed: {allowed}")
    foretold = begun.setup.simulated is not None
    if foretold if simulate is None else simulate:
        new = _simulated(old, begun, cell, root)
    else:
        new = _measured(begun, cell, root, inventory)
    _tell(old, new, cell)
    sys.exit(exit_status(new))


def _measured(begun: Campaign, cell: str, root: Path, inventory: Path) -> Path:
    from dasklab.commands import progress
    from dasklab.commands.target import open_running
    from dasklab.results.storage import store

    open_running(inventory)
    content = store.experiment(begun)
    return progress.start(inventory, root, begun.name, content, quick=begun.quick, seed=begun.seed, only=cell)


def _simulated(old: Path, begun: Campaign, cell: str, root: Path) -> Path:
    from dasklab.commands.simulated import Calibrated
    from dasklab.predict.simulated_lab import Calibrations
    from dasklab.results.storage import store

    content = store.experiment(begun)
    if begun.setup.simulated:
        calibrated = Calibrated(store.need(Calibrations, old), begun.setup)
    else:
        calibrated = Calibrated.on(old, content, SEEDS)
    return calibrated.start(root, begun.name, content, quick=begun.quick, seed=begun.seed, only=cell)


def _tell(old: Path, new: Path, cell: str) -> None:
    """Each trial of the cell in both runs; and whether they are the same."""
    from dasklab.results.statistics import compare, reproduction

    rows = reproduction.rows(old, new, cell)
    click.echo()
    print_table(HEAD, [row.cells for row in rows], title=f"{cell}: {old} and {new}")
    if compare.simulated_from(old) and compare.simulated_from(new):
        same = all(row.same for row in rows)
        click.echo(
            "The same to the last digit."
            if same
            else "Not the same: lab/dasklab/sim/README.md says what that hangs on (Determinism)."
        )
        return
    for verdict in reproduction.verdicts(old, new, cell):
        click.echo(verdict)
