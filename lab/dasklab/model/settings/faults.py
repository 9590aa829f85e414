"""Faults that a trial injects: a worker dies, restarts, or a link is down for a while; pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from dasklab.errors import did_you_mean
from dasklab.model.forms.strict import Strict

MOST_S = 86_400


def _require_moment(value: Any) -> Any:
    """Accept seconds, or a pair of a lowest and a highest number of seconds to draw from."""
    ends = value if isinstance(value, list | tuple) and len(value) == 2 else [value, value]
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
    if not numbers or not 0 <= ends[0] <= ends[1] <= MOST_S:
        raise ValueError(f"seconds from 0 to {MOST_S}, or [LOW, HIGH] to draw from, got {value!r}")
    return value


class Fault(Strict):
    """One fault of one host. ``at_s`` counts from the start of the first timed repeat, after the warm-ups."""

    host: str
    does: Literal["kill", "restart", "cut"]
    at_s: Annotated[float | tuple[float, float], BeforeValidator(_require_moment)]
    for_s: float | None = Field(default=None, gt=0, le=MOST_S)

    @model_validator(mode="after")
    def _duration_fits(self) -> Fault:
        if self.does == "kill" and self.for_s is not None:
            raise ValueError("a killed host does not come back: for_s goes with restart and cut")
        if self.does != "kill" and self.for_s is None:
            raise ValueError(f"{self.does} needs for_s, its duration in seconds")
        return self

    def at_moment(self, random: Random) -> Fault:
        """Return the fault with a number for ``at_s``, drawn where it is a range."""
        if not isinstance(self.at_s, tuple):
            return self
        return self.model_copy(update={"at_s": round(random.uniform(*self.at_s), 3)})

    def __str__(self) -> str:
        """Return ``cut of worker-1 at 2 s for 1 s``; the moment must be a number."""
        duration = f" for {self.for_s:g} s" if self.for_s else ""
        return f"{self.does} of {self.host} at {self.at_s:g} s{duration}"


def find_mistake(faults: Sequence[Fault], scheduler: str, workers: Sequence[str]) -> str | None:
    """Return what is wrong with the faults of these hosts, as ``key: reason``; None if nothing is."""
    for number, fault in enumerate(faults):
        allowed = [scheduler, *workers] if fault.does == "cut" else workers
        if fault.host not in allowed:
            choice = f"{', '.join(allowed)}{did_you_mean(fault.host, allowed)}"
            return f"faults.{number}.host: no {fault.host!r} to {fault.does}; allowed: {choice}"
        if fault.host in [other.host for other in faults[:number]]:
            return f"faults.{number}.host: {fault.host} has a fault already; allowed: one for each host"
    if {fault.host for fault in faults if fault.does == "kill"} >= set(workers):
        return f"faults: no worker is left of {len(workers)}; allowed: to kill all but one"
    return None
