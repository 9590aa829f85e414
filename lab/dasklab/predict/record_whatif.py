"""Predict what a recorded block would take with other settings: rows, what to know about them, a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dasklab import records
from dasklab.breakdown.show.notebook import html_picture, html_table, html_text
from dasklab.model.files import Outcome
from dasklab.model.forms.number_format import format_fixed
from dasklab.predict import record
from dasklab.predict.prediction import RunSummary, summarize
from dasklab.predict.record_memory import held_data
from dasklab.predict.record_simulations import RecordSimulations
from dasklab.predict.validation import outside_note
from dasklab.results.run import Trial, open_trial
from dasklab.terminal import prose, table_text

HEAD = ("what", "simulations", "mean", "90 % of the simulations", "may be", "moved between workers")


@dataclass(frozen=True)
class Prediction:
    """What a block took, what its simulation takes, and what it takes with changes.

    Attributes:
        rows: measured, simulated without a change, and with the changes if there are any.
        wide: the same with intervals that include the error found in validation.
        notes: what a reader has to know, a sentence each.
    """

    rows: tuple[RunSummary, ...]
    wide: tuple[RunSummary, ...]
    notes: tuple[str, ...]
    outside: tuple[str, ...]

    @cached_property
    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table, as texts."""
        return [
            (
                row.what,
                str(row.repeats) if row.simulated else "",
                f"{row.mean_s:.2f} s",
                f"{row.low_s:.2f} to {row.high_s:.2f} s" if row.simulated else "",
                f"{wide.low_s:.2f} to {wide.high_s:.2f} s" if row.simulated else "",
                f"{row.transfer_bytes / 1e6:.0f} MB",
            )
            for row, wide in zip(self.rows, self.wide, strict=True)
        ]

    def __str__(self) -> str:
        return "\n".join([table_text(HEAD, self.cells), "", *map(prose, self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html_text(note)}</p>" for note in self.notes)
        return html_table(HEAD, self.cells) + notes + self._picture()

    def _picture(self) -> str:
        """Draw the rows, if matplotlib is installed."""
        try:
            from dasklab.predict import record_pictures
        except ImportError:
            return "<p>For a picture: pip install dasklab[report]</p>"
        return html_picture(record_pictures.durations(self.rows, self.wide))


def predict(
    folder: Trial,
    changes: dict[str, Any],
    label: str,
    seeds: Iterable[int],
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Prediction:
    """Simulate a record as it was and with changes.

    Args:
        changes: settings, nested as ``whatif.parse`` returns them.
        label: names the changes.

    Raises:
        LabError: the record cannot be simulated, its simulation is too far from what was measured, or a
            change is unknown or impossible.
    """
    work = record.read(folder)
    record.check(work, changes)  # before the simulations, which take long
    simulations = RecordSimulations.start(work, seeds, on_outcome)
    measured = summarize("measured", [work.measured_s], [work.moved_bytes], simulated=False)
    simulated = [simulations.unchanged]
    if changes:
        what = f"simulated, {label}"
        simulated.append(simulations.simulate({what: changes})[what][0])
    outside = simulations.outside([changes])
    difference = format_fixed(100 * simulations.error, 0, "+")
    notes = [
        f"The simulation of the recorded block differs by {difference} % from the measured time.",
        *work.limits,
        *_unknown(work, changes),
        *outside_note(outside),
    ]
    return Prediction(
        (measured, *simulated), (measured, *map(simulations.widened, simulated)), tuple(notes), outside
    )


def whatif_folder(folder: Path, seeds: int, changes: dict[str, Any]) -> Prediction:
    """Predict for the record in a folder; ``changes`` are arguments such as ``workers=12``."""
    label = ", ".join(f"{name}={value}" for name, value in changes.items())
    with records.reading(folder):
        return predict(open_trial(folder), changes, label, range(seeds))


def _unknown(work: record.RecordedWork, changes: dict[str, Any]) -> list[str]:
    """Return a sentence for each thing that a record cannot know about the changes."""
    calibration, unknown = work.calibration, []
    if changes.get("threads", calibration.threads) > calibration.threads:
        unknown.append(
            "A worker's threads share the interpreter lock; tasks that hold it take longer than predicted."
        )
    if changes.get("workers", calibration.workers) > calibration.workers and not {
        "cores",
        "cores_each",
    } & set(changes):
        unknown.append("Each further worker has cores of its own; --set cores=N shares N among all.")
    data = held_data(work.explained.facts.memory, work.repeat.start, work.repeat.stop)
    if "workers" in changes and not data.fits(changes["workers"]):
        unknown.append(data.warning(changes["workers"]))
    return unknown
