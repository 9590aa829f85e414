"""``dasklab record``: record a running Dask cluster from a shell."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.console.path_types import OutputFolder
from dasklab.errors import LabError
from dasklab.terminal import echo

if TYPE_CHECKING:
    from dasklab.records.session import Session

CONNECT_S = 10
A_YEAR_S = 365 * 86_400
LOOK_S = 0.5  # between two looks at whether the record is cut off


@click.command()
@click.argument("scheduler", metavar="SCHEDULER")
@click.argument("folder", metavar="FOLDER", type=OutputFolder())
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after so long; default: until Ctrl-C.")
@click.option(
    "--hash-keys", is_flag=True, help="Record hashes instead of task keys and names; implies --no-code."
)
@click.option("--no-code", is_flag=True, help="Leave out lines of code, file paths and texts of errors.")
@click.option(
    "--max-mb",
    type=click.FloatRange(min=0),
    default=1000,
    show_default=True,
    help="Where the tables end, on disk.",
)
def record(
    scheduler: str, folder: Path, seconds: float | None, hash_keys: bool, no_code: bool, max_mb: float
) -> None:
    """Record a running Dask cluster, to explain where its time goes.

    SCHEDULER is its address, as tcp://10.0.0.2:8786. TLS is configured as for any Dask client. Nothing is
    installed in the cluster, and nothing remains there. Ctrl-C ends the recording and keeps the data. If the
    cluster or the disk fails, the record is cut off, and the exit status is 1.

    \b
    dasklab record tcp://10.0.0.2:8786 run/ --seconds 60
    dasklab explain run/
    """
    if not re.search(r":\d+/?$", scheduler):
        raise LabError(
            f"{scheduler}: the port is missing", f"a scheduler's is usually 8786: {scheduler}:8786"
        )
    from distributed import Client

    from dasklab.records.session import Session

    try:
        client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise LabError(
            f"{scheduler}: {error}", "is the scheduler running, and is this its address?"
        ) from error
    with client:
        begin = time.monotonic()
        keys = "hash" if hash_keys else "plain"
        with Session(client, folder, not no_code, keys, max_mb=max_mb, watches=True) as run:
            echo(f"Recording {scheduler} into {folder}. Ctrl-C ends it.", err=True)
            try:
                _wait(run, begin + (A_YEAR_S if seconds is None else seconds))
            except KeyboardInterrupt:
                echo("", err=True)
    if not run.complete and not run.beyond_limit:
        raise LabError(
            f"{folder}: the record was cut off", f"dasklab explain {folder} shows what was kept of it"
        )
    echo(f"Recorded {time.monotonic() - begin:.0f} s. To see where the time went: dasklab explain {folder}")


def _wait(run: Session, stop_s: float) -> None:
    """Wait until a time of the monotonic clock, or until the record is cut off."""
    while run.is_recording and (left_s := stop_s - time.monotonic()) > 0:
        time.sleep(min(left_s, LOOK_S))
