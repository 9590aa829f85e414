"""Scheduler variants and worker variants, and the layout of a host: what runs in place of Dask's own.

A scheduler is any command that keeps the contract ``COMMAND PORT FILE`` (README of role ``dask``). The
variants by name are Dask's own scheduler with other settings, or with a preload of that role.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from dasklab.model.forms.strict import Strict

LAYOUT = "[1-9][0-9]{0,2}x[1-9][0-9]{0,2}"


@dataclass(frozen=True)
class Variant:
    """Dask's scheduler with its own settings; ``preload`` stands for ``dasklab_<preload>.py`` of the role."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    preload: str = ""


SCHEDULER_VARIANTS = {
    "dask": Variant(),
    "random": Variant(preload="random"),
    "no-queuing": Variant({"distributed": {"scheduler": {"worker-saturation": "inf"}}}),
    "no-stealing": Variant({"distributed": {"scheduler": {"work-stealing": False}}}),
    "uvloop": Variant({"distributed": {"admin": {"event-loop": "uvloop"}}}),
}
SchedulerVariant = Literal["dask", "random", "no-queuing", "no-stealing", "uvloop"]


class ResolvedScheduler(Strict):
    """The scheduler that a trial starts: a command, or a variant with its settings and preload.

    Without a variant and a command it is the inventory's scheduler, about which nothing is assumed.
    """

    variant: SchedulerVariant | None = None
    command: str | None = None
    settings: dict[str, Any] = {}
    preload: str = ""


class Scheduler(Strict):
    """The requested scheduler: a variant by name, or a command; without either, the inventory's."""

    variant: SchedulerVariant | None = None
    command: str | None = Field(
        default=None, description="COMMAND of `COMMAND PORT FILE`, with its own arguments"
    )

    @field_validator("command")
    @classmethod
    def _has_words(cls, command: str | None) -> str | None:
        if command is not None and not shlex.split(command):
            raise ValueError("a command has at least one word")
        return command

    @model_validator(mode="after")
    def _variant_or_command(self) -> Scheduler:
        if self.variant and self.command:
            raise ValueError("a scheduler is a variant or a command, not both")
        return self

    def resolve(self) -> ResolvedScheduler:
        """Look up the settings and the preload of the variant."""
        if self.variant is None:
            return ResolvedScheduler(command=self.command)
        variant = SCHEDULER_VARIANTS[self.variant]
        return ResolvedScheduler(
            variant=self.variant, settings=dict(variant.settings), preload=variant.preload
        )


class Worker(Strict):
    """The requested workers: Dask's own, or zero workers, which answer at once and compute nothing."""

    variant: Literal["dask", "zero"] = "dask"


class Layout(Strict):
    """The number of worker processes on a host, and of threads in each of them."""

    processes: int
    threads: int

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse a text such as ``2x1``: two processes of one thread."""
        processes, threads = map(int, text.split("x"))
        return cls(processes=processes, threads=threads)


def _require_layout(text: str) -> str:
    if not re.fullmatch(LAYOUT, text):
        raise ValueError(f"a layout is PROCESSESxTHREADS, such as 2x1, got {text!r}")
    return text


LayoutText = Annotated[
    str, AfterValidator(_require_layout), WithJsonSchema({"type": "string", "pattern": LAYOUT})
]
