"""``dasklab check``: are new records slower than older ones? For continuous integration."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dasklab.console.path_types import UserPath
from dasklab.errors import LabError
from dasklab.terminal import UnreadableError, echo

FOLDER = UserPath(exists=True, file_okay=False)


def percent(context: click.Context, option: click.Parameter, value: str) -> float:
    """Return a percentage that is written with or without its sign."""
    try:
        number = float(value.strip().removesuffix("%"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a percentage") from None
    if not 0 <= number < float("inf"):
        raise click.BadParameter(f"{value!r} is negative or infinite")
    return number


@click.command()
@click.argument("new", metavar="NEW...", type=FOLDER, nargs=-1, required=True)
@click.option("--against", "old", metavar="OLD", type=FOLDER, multiple=True, required=True,
              help="A record from before; give it once for each.")  # fmt: skip
@click.option("--slower", "limit_pct", metavar="PERCENT", callback=percent, default="10%", show_default=True,
              help="How much longer counts as slower.")  # fmt: skip
@click.option("--allow-different-work", is_flag=True,
              help="Compare records of different work, too, as between two versions of Dask.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(
    new: tuple[Path, ...],
    old: tuple[Path, ...],
    limit_pct: float,
    allow_different_work: bool,
    as_json: bool,
) -> None:
    """Check whether new records are slower than old ones of the same work.

    Exit status: 0 not slower, 1 slower, 2 wrong arguments, 3 a record is damaged or unreadable, 4 cannot
    decide: a record was cut off or is given twice, the work differs, or the lengths vary too much. Several
    records on each side are needed: from single records nobody can tell a change from chance.

    \b
    dasklab check new-1/ new-2/ --against old-1/ --against old-2/ --slower 10%
    """
    from dasklab import records as stored
    from dasklab.breakdown.show.explain import explain
    from dasklab.comparison import check as checking
    from dasklab.model.forms.json_output import to_json
    from dasklab.results.run import open_trial

    try:
        records = [explain(open_trial(path)) for path in (*new, *old)]
    except (LabError, OSError) as error:
        raise UnreadableError(str(error)) from None
    remedy = None if allow_different_work else "--allow-different-work compares them all the same"
    with stored.reading("one of the records"):
        result = checking.check(records[: len(new)], records[len(new) :], limit_pct, remedy)
    echo(to_json(result, checking.CheckedRecords, indent=None) if as_json else str(result))
    sys.exit(result.verdict.value)
