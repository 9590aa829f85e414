"""Predict what a recorded block would take with other settings: rows, what to know about them, a picture."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dasklab.breakdown.show.notebook import aligned, html_picture, html_table
from dasklab.errors import LabError
from dasklab.model.files import Outcome
from dasklab.predict import prediction, record
from dasklab.predict.prediction import RunSummary, summarize
from dasklab.predict.validation import Validated
from dasklab.results.run import Trial, open_trial
from dasklab.sim.scenario import Scenario

HEAD = ("what", "simulations", "mean", "90 % of the simulations", "may be", "moved between workers")
UNCHANGED = "simulated, unchanged"
MOST_ERROR = 0.3
"""A simulation of the block as it was that misses its time by a larger share predicts no change of it."""


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
        return "\n".join([*aligned([HEAD, *self.cells]), "", *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
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
    calibration = record.calibrate(work)
    all_changes = {UNCHANGED: dict[str, Any]()} | ({f"simulated, {label}": changes} if changes else {})
    seeds = list(seeds)
    rows = [summarize("measured", [work.measured_s], [work.moved_bytes], simulated=False)]
    changed: Scenario | None = None
    for what, own in all_changes.items():
        scenarios = [record.scenario(work, calibration, own, seed=seed) for seed in seeds]
        rows.append(prediction.simulated(what, scenarios, on_outcome)[0])
        changed = scenarios[0]
        if changes:
            require_similar(folder, rows[0].mean_s, rows[1].mean_s)
    validated = Validated.read()
    wide = [validated.widened(row) if row.simulated else row for row in rows]
    outside = tuple(validated.outside(changed)) if changed else ()
    notes = [
        f"The simulation of the recorded block differs by {_error(rows):+z.0%} from the measured time.",
        *work.limits,
        *_unknown(work, changes),
    ]
    notes += outside_note(outside)
    return Prediction(tuple(rows), tuple(wide), tuple(notes), outside)


def whatif_folder(folder: Path, seeds: int, changes: dict[str, Any]) -> Prediction:
    """Predict for the record in a folder; ``changes`` are arguments such as ``workers=12``."""
    label = ", ".join(f"{name}={value}" for name, value in changes.items())
    return predict(open_trial(folder), changes, label, range(seeds))


def require_similar(folder: Trial, measured_s: float, simulated_s: float) -> None:
    """Refuse to predict if the simulation without a change is too far from what was measured.

    Raises:
        LabError: it is.
    """
    error = simulated_s / measured_s - 1
    if abs(error) > MOST_ERROR:
        raise LabError(
            f"no prediction for {folder}: it took {measured_s:.2f} s, and its simulation without"
            f" a change takes {simulated_s:.2f} s ({error:+.0%})",
            "something that is not simulated made the difference; dasklab explain shows what",
        )


def outside_note(outside: Iterable[str]) -> list[str]:
    """Say what lies outside of what was validated, if anything does."""
    names = "; ".join(outside)
    return [f"Outside of what was validated, so trust it less: {names}."] if names else []


def _error(rows: Sequence[RunSummary]) -> float:
    """Return by what share the simulation without a change differs from the measured time."""
    return rows[1].mean_s / rows[0].mean_s - 1


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
    return unknown
