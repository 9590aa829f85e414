"""Who takes part in a cluster: what sits on the scheduler's and the workers' seats, and each host's layout.

A seat is a command that keeps a contract, ``SEAT PORT FILE``, which the README of role ``dask`` has. A ready
occupant is Dask's own scheduler with settings, or with a preload of that role.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from dasklab.model.strict import Strict

LAYOUT = "[1-9][0-9]{0,2}x[1-9][0-9]{0,2}"


@dataclass(frozen=True)
class Occupant:
    """Dask's scheduler with settings of its own; ``preload`` is ``dasklab_<preload>.py`` of the role."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    preload: str = ""


OCCUPANTS = {
    "dask": Occupant(),
    "random": Occupant(preload="random"),
    "no-queuing": Occupant({"distributed": {"scheduler": {"worker-saturation": "inf"}}}),
    "no-stealing": Occupant({"distributed": {"scheduler": {"work-stealing": False}}}),
    "uvloop": Occupant({"distributed": {"admin": {"event-loop": "uvloop"}}}),
}
OccupantName = Literal["dask", "random", "no-queuing", "no-stealing", "uvloop"]


class Scheduler(Strict):
    """The scheduler's seat: a ready occupant or a command; neither is what the inventory has."""

    occupant: OccupantName | None = None
    command: str | None = Field(default=None, description="SEAT of `SEAT PORT FILE`, with its own arguments")

    @field_validator("command")
    @classmethod
    def _has_words(cls, command: str | None) -> str | None:
        if command is not None and not shlex.split(command):
            raise ValueError("a command has at least one word")
        return command

    @model_validator(mode="after")
    def _one_of_both(self) -> Scheduler:
        if self.occupant and self.command:
            raise ValueError("a seat has an occupant or a command, not both")
        return self

    def seat(self) -> Seat:
        """What the role ``dask`` is told."""
        if self.occupant is None:
            return Seat(command=self.command)
        occupant = OCCUPANTS[self.occupant]
        return Seat(occupant=self.occupant, settings=dict(occupant.settings), preload=occupant.preload)


class Worker(Strict):
    """The workers' seats: Dask's own, or zero workers, which answer at once and compute nothing."""

    occupant: Literal["dask", "zero"] = "dask"


class Seat(Strict):
    """A seat with all that it takes: Dask's settings for the scheduler alone, a preload, a command.

    Without occupant and command it is the inventory's, and nothing is known of it.
    """

    occupant: OccupantName | None = None
    command: str | None = None
    settings: dict[str, Any] = {}
    preload: str = ""


class Layout(Strict):
    """How many worker processes a host has, and how many threads each of them."""

    processes: int
    threads: int

    @classmethod
    def parse(cls, text: str) -> Layout:
        """From ``2x1``."""
        processes, threads = map(int, text.split("x"))
        return cls(processes=processes, threads=threads)


def _is_layout(text: str) -> str:
    if not re.fullmatch(LAYOUT, text):
        raise ValueError(f"a layout is PROCESSESxTHREADS, as 2x1, got {text!r}")
    return text


LayoutText = Annotated[str, AfterValidator(_is_layout), WithJsonSchema({"type": "string", "pattern": LAYOUT})]
