"""The study's NIC experiment as one program: ``python lab/nic_matrix.py`` in the project's folder.

The same as ``dasklab run nic_matrix``, except that results go to the project's own ``results`` folder.
"""

from __future__ import annotations

from pathlib import Path

import click
from dasklab.commands.run import run
from dasklab.console.options import inventory_option
from dasklab.console.path_types import UserPath
from dasklab.errors import LabError
from dasklab.paths import SHARE, make_environment_absolute
from dasklab.terminal import one_line_errors


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Run the short form, meant for emulated machines.")
@click.option("--dry-run", is_flag=True, help="Print the trials in order and the estimated time.")
@click.option("--only", metavar="CELL", help="Run one NIC, the baseline and the null trial: 'nic=E1000'")
@click.option("--seed", type=int, help="Shuffle the trials with this seed instead of the experiment's.")
@click.option(
    "--resume", type=UserPath(exists=True, file_okay=False), help="Continue the run in this folder."
)
@click.option(
    "--results",
    "root",
    type=UserPath(file_okay=False),
    default=SHARE / "results",
    show_default=True,
    help="Folder of all runs.",
)
@inventory_option
@click.pass_context
def main(context: click.Context, /, resume: Path | None, **options: object) -> None:
    """Measure RTT, throughput and compute time with five NICs: VirtIO, VirtIO 10G and 1G, E1000, RTL8139.

    If the lab also has an image for containers, veth, veth 10G and 1G are measured as well. The lab must be
    running (`dasklab up`). Each block contains the baseline (VirtIO) and its null trial, in random order.
    Afterwards: dasklab report RESULTS/nic_matrix/<time>
    """
    make_environment_absolute()
    with one_line_errors(LabError):
        context.invoke(run, what=str(resume) if resume else "nic_matrix", **options)


if __name__ == "__main__":
    main()
