"""What goes wrong in a trial on purpose: a worker dies, comes back, or a link is down for a while; pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from dasklab.model.strict import Strict

MOST_S = 86_400


def _moment(value: Any) -> Any:
    """Seconds, or a lowest and a highest to draw from."""
    ends = value if isinstance(value, list | tuple) and len(value) == 2 else [value, value]
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
    if not numbers or not 0 <= ends[0] <= ends[1] <= MOST_S:
        raise ValueError(f"seconds from 0 to {MOST_S}, or [LOW, HIGH] to draw from, got {value!r}")
    return value


class Fault(Strict):
    """One fault of one host. ``at_s`` counts from the start of the first timed run, behind the warm-ups."""

    host: str
    does: Literal["kill", "restart", "cut"]
    at_s: Annotated[float | tuple[float, float], BeforeValidator(_moment)]
    for_s: float | None = Field(default=None, gt=0, le=MOST_S)

    @model_validator(mode="after")
    def _has_its_end(self) -> Fault:
        if self.does == "kill" and self.for_s is not None:
            raise ValueError("what is killed stays away: for_s goes with restart and cut")
        if self.does != "kill" and self.for_s is None:
            raise ValueError(f"{self.does} needs for_s, the seconds until it is over")
        return self

    def drawn(self, dice: Random) -> Fault:
        """The same at one moment."""
        if not isinstance(self.at_s, tuple):
            return self
        return self.model_copy(update={"at_s": round(dice.uniform(*self.at_s), 3)})

    def __str__(self) -> str:
        """In words, of one that is drawn."""
        lasting = f" for {self.for_s:g} s" if self.for_s else ""
        return f"{self.does} of {self.host} at {self.at_s:g} s{lasting}"


def mistake(faults: Sequence[Fault], scheduler: str, workers: Sequence[str]) -> str | None:
    """What is wrong with the faults of these hosts, as ``key: words``."""
    for number, fault in enumerate(faults):
        allowed = [scheduler, *workers] if fault.does == "cut" else workers
        if fault.host not in allowed:
            return f"faults.{number}.host: no {fault.host!r} to {fault.does}; allowed: {', '.join(allowed)}"
        if fault.host in [other.host for other in faults[:number]]:
            return f"faults.{number}.host: {fault.host} has a fault already; allowed: one for each host"
    if {fault.host for fault in faults if fault.does == "kill"} >= set(workers):
        return f"faults: no worker is left of {len(workers)}; allowed: to kill all but one"
    return None
