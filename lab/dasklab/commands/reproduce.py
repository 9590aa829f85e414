"""``dasklab reproduce``: run a cell of a stored run again from its seed, and compare the two."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.console.options import inventory_option, new_results_option
from dasklab.console.path_types import UserPath
from dasklab.console.trials.exit_status import HELP
from dasklab.console.trust import cells_of, require_trust, trust_option
from dasklab.errors import LabError, did_you_mean
from dasklab.predict import SEEDS
from dasklab.terminal import echo, print_table

if TYPE_CHECKING:
    from dasklab.results.run import Run

HEADS = ("trial", "value", "old", "new", "")


@click.command(epilog=HELP)
@click.argument("old", metavar="RUN", type=UserPath(exists=True, file_okay=False))
@click.argument("cell", metavar="CELL")
@click.option(
    "--simulate/--measure",
    "simulate",
    default=None,
    help="Run in virtual time, or in the lab. By default as RUN did.",
)
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@new_results_option
@inventory_option
def reproduce(
    old: Path, cell: str, simulate: bool | None, trusted: bool, as_json: bool, root: Path, inventory: Path
) -> None:
    """Run a cell of a stored run again, and compare the results.

    The new run has the seed, settings and faults of RUN, and contains CELL, the baseline and the null trial.
    A simulation must give the same digits again; a measurement must agree within the noise.

    \b
    dasklab reproduce RUN fault=kill             in the lab or simulated, like RUN
    dasklab reproduce RUN fault=kill --simulate  simulate a measured cell with the
                                                 costs measured in RUN
    """
    from dasklab.console.trials.outcome import exit_status
    from dasklab.results.run import open_run

    stored = open_run(old)
    finished_cells = dict.fromkeys(trial.result.cell for trial in stored.trials)
    if cell not in finished_cells:
        allowed = f"{'; '.join(finished_cells) or 'none'}{did_you_mean(cell, finished_cells)}"
        raise LabError(f"{old}: no finished trial of a cell {cell!r}; allowed: {allowed}")
    measured = [trial.requested for trial in stored.trials]
    require_trust([*cells_of(stored.experiment), *measured], old, trusted=trusted)
    if simulate is None:
        simulate = stored.simulated is not None
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        new = _simulate(stored, cell, root) if simulate else _measure(stored, cell, root, inventory)
    if as_json:
        _print_json(stored, new, cell)
    else:
        _print_comparison(stored, new, cell)
    sys.exit(exit_status(new))


def _measure(stored: Run, cell: str, root: Path, inventory: Path) -> Run:
    from dasklab.console.lab.target import open_running
    from dasklab.console.trials import progress

    open_running(inventory)
    document = stored.document
    return progress.start(
        *(inventory, root, document.name, stored.experiment),
        quick=document.quick,
        seed=document.seed,
        only=cell,
    )


def _simulate(stored: Run, cell: str, root: Path) -> Run:
    from dasklab.console.trials.simulated import Calibrated
    from dasklab.predict.simulated_lab import Calibrations

    document, content = stored.document, stored.experiment
    if stored.simulated:
        calibrated = Calibrated(stored.require(Calibrations), stored.setup)
    else:
        calibrated = Calibrated.from_measured(stored, content, SEEDS)
    return calibrated.start(root, document.name, content, quick=document.quick, seed=document.seed, only=cell)


def _print_json(old: Run, new: Run, cell: str) -> None:
    from dasklab.comparison.reproduction import Reproduced
    from dasklab.model.forms.json_output import to_json

    echo(to_json(Reproduced.of(old, new, cell), Reproduced))


def _print_comparison(old: Run, new: Run, cell: str) -> None:
    """Print each trial of the cell from both runs, and whether they agree."""
    from dasklab.comparison import reproduction
    from dasklab.results.statistics import identity

    rows = reproduction.rows(old, new, cell)
    echo()
    print_table(HEADS, [row.columns for row in rows], title=f"{cell}: {old} and {new}")
    if identity.simulated_from(old) and identity.simulated_from(new):
        same = all(row.same for row in rows)
        echo(
            "All digits are the same."
            if same
            else "The results differ. docs/explanation/simulation.md lists what determinism requires."
        )
        return
    for verdict in reproduction.verdicts(old, new, cell):
        echo(verdict)
