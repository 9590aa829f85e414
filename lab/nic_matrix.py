"""The study's NIC experiment as one command: ``python lab/nic_matrix.py``, from any directory.

The same as ``dasklab run nic_matrix`` with the lab's own results directory as the default.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # run as a file: the project, not this directory, is where modules are found
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import click
from dasklab.commands.options import inventory_option
from dasklab.commands.run import run
from dasklab.errors import LabError
from dasklab.path_types import UserPath
from dasklab.paths import SHARE, anchor_environment
from dasklab.terminal import one_line


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="The short form, for a lab of emulated machines.")
@click.option("--dry-run", is_flag=True, help="Print the trials in their order and an estimate of the time.")
@click.option("--only", metavar="CELL", help="Only this NIC, with baseline and null trial: 'nic=E1000'")
@click.option("--seed", type=int, help="Shuffle the trials by this number.")
@click.option(
    "--resume", type=UserPath(exists=True, file_okay=False), help="Go on with the run of this directory."
)
@click.option(
    "--results", "root", type=UserPath(file_okay=False), default=SHARE / "results", show_default=True
)
@inventory_option
@click.pass_context
def main(context: click.Context, /, resume: Path | None, **options: object) -> None:
    """Measure RTT, throughput and compute time with five NICs: VirtIO, VirtIO 10G and 1G, E1000, RTL8139.

    Where the lab has an image of containers too, with theirs as well: veth, veth 10G and 1G.
    The lab must be up (`dasklab up`). Every block has the baseline (VirtIO) and its null trial; the order is
    shuffled. Then: dasklab report RESULTS/nic_matrix/<time>
    """
    anchor_environment()
    with one_line(LabError):
        context.invoke(run, what=str(resume) if resume else "nic_matrix", **options)


if __name__ == "__main__":
    main()
