"""attempt.json, failed.json and result.json: how a trial ended, and the verdict on it."""

from __future__ import annotations

from typing import ClassVar, Literal

from dasklab.model.files.quantities import Amount
from dasklab.model.files.timings import Pause
from dasklab.model.forms.document import Document

Status = Literal["ok", "invalid", "unsupported", "failed"]
AGAIN = "again: "  # among a failed trial's reasons, the command that repeats it begins so


class Failed(Document):
    """Why a trial did not complete."""

    FILE: ClassVar[str] = "failed.json"

    status: Literal["failed", "unsupported"]
    host: str
    task: str
    reasons: tuple[str, ...]


class Attempt(Document):
    """The driver's own notes of a trial.

    ``started`` is in seconds since the epoch, ``exit_status`` that of the playbook. ``files`` are the
    documents that the trial left, so that a removed one is noticed; early versions did not write them down.
    ``suspended_s`` is how long the driver's own machine was suspended during the trial; ``pauses`` are those
    of the driver itself.
    """

    FILE: ClassVar[str] = "attempt.json"

    started: Amount
    exit_status: int
    wall_s: Amount
    measuring_s: Amount
    error: str | None
    files: tuple[str, ...] = ()
    suspended_s: float = 0.0
    pauses: tuple[Pause, ...] = ()


class Result(Document):
    """The verdict on one trial. Statistics are always computed from the samples, never stored.

    ``reasons`` are why it is not ok; ``warnings`` do not change that it counts.
    """

    FILE: ClassVar[str] = "result.json"

    experiment: str
    trial: str
    cell: str
    status: Status
    reasons: tuple[str, ...]
    wall_s: Amount
    measuring_s: Amount
    warnings: tuple[str, ...] = ()
