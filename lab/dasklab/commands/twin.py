"""``dasklab twin``: a lab that replays a record. Packages that it needs are imported on use."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.console.path_types import OutputFolder, UserPath
from dasklab.console.simulating import simulating
from dasklab.errors import LabError
from dasklab.paths import display_path
from dasklab.predict import SEEDS
from dasklab.terminal import echo, print_prose, print_table


@click.command()
@click.argument("path", metavar="RECORD", type=UserPath(exists=True, file_okay=False))
@click.option("-o", "--output", "folder", type=OutputFolder(), help="New folder of the twin.")
@click.option("--machines", is_flag=True, help="Virtual machines, which have NIC models, not containers.")
@click.option(
    "--compare",
    "run",
    metavar="RUN",
    type=UserPath(exists=True, file_okay=False),
    help="Show the record, its simulation and this run of its twin.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=SEEDS,
    show_default=True,
    help="Simulations of the record, for --compare.",
)
def twin(path: Path, folder: Path | None, machines: bool, run: Path | None, seeds: int) -> None:
    """Write a lab like a recorded cluster, which replays the recorded graph.

    FOLDER gets an inventory (workers with their threads and memory), an experiment with the rates and delays
    that the record shows, and a workload: placeholder tasks with the recorded dependencies, CPU time, waiting
    time and sizes of results, sent by a client that does what the recorded one did. So NIC models, rate caps,
    delays or versions of Dask can be tried out for a cluster that must not be touched.

    What this machine cannot hold is scaled by a factor that is printed, or refused.

    \b
    dasklab twin run/ -o mytwin         write the lab
    dasklab up                          in the new folder: build it
    dasklab run twin.yml                and measure it
    dasklab twin ../run/ --compare results/twin/RUN
                                        record, simulation and twin together
    """
    if (folder is None) == (run is None):
        raise click.UsageError("Name a new folder (-o FOLDER), or a run of the twin (--compare RUN).")
    from dasklab import records
    from dasklab.predict import record
    from dasklab.predict import twin as twins
    from dasklab.predict.engine.choice import simulations_on
    from dasklab.results.run import open_run

    opened = open_run(path)
    if opened.is_experiment or not opened.single.is_record:
        raise LabError(
            f"{opened}: not a record of a cluster", "to repeat a cell of a run: dasklab run RUN --only CELL"
        )
    if folder:
        kind = "machines" if machines else "containers"
        with records.reading(opened):
            lab = twins.Twin(record.read(opened.single), twins.Machine.this(), kind)
            twins.write(lab, folder)
        print_prose(f"Wrote {display_path(folder)}: {lab.summary}")
        for note in lab.notes:
            print_prose(note)
        echo("To build and measure it, run:")
        echo(f"  cd {display_path(folder)}\n  dasklab up\n  dasklab run {twins.EXPERIMENT}.yml")
        return
    assert run is not None  # checked above
    with records.reading(opened), simulations_on(None), simulating(seeds) as progress:
        compared = twins.compare(opened.single, open_run(run), range(seeds), progress.report)
    print_table(twins.HEAD, compared.cells)
    print_prose(f"\n{compared.sentence}")
