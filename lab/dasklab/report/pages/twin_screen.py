"""Of a run that replays a record: the record, its simulation and the twin side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from dasklab.errors import LabError
from dasklab.predict import SEEDS, twin
from dasklab.predict.engine.choice import simulations_on
from dasklab.report.drawings.captures.content import TextTable
from dasklab.results.run import Run, Trial


@dataclass(frozen=True)
class TwinScreen:
    """The table and its sentence. Without a table, the sentence says why nothing is compared."""

    sentence: str
    table: TextTable | None = None


def twin_screen(run: Run, record: Trial | None, progress: Callable[[str], None]) -> TwinScreen | None:
    """Simulate the record that a run replays, and compare; None if the run is measured on no twin.

    Args:
        record: the one that the user names. A run may come from anybody: what it names is not opened.
    """
    if run.simulated or not twin.replays_record(run):
        return None
    if record is None:
        return TwinScreen("This run replays a record. To compare the two: dasklab report RUN --record RECORD")
    name, numbers = run.document.name, count(1)
    try:
        with simulations_on(None):
            compared = twin.compare(
                record,
                run,
                range(SEEDS),
                lambda _: progress(f"{name}: simulated the record {next(numbers)} of {SEEDS} times"),
            )
    except LabError as error:
        return TwinScreen(f"Not compared with the record: {error.message}.")
    return TwinScreen(
        compared.sentence,
        TextTable("Record, simulation and twin", [*twin.HEAD], [[*row] for row in compared.cells]),
    )
