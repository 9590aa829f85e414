"""What is done to a host's lab link inside its guest.

The amounts are those of ``dasklab.model.impairments``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from dasklab.model.impairments import AMOUNTS, IMPAIRMENTS, mistake
from dasklab.model.strict import Strict


def _amount(key: str) -> Any:
    """A field of this impairment, 0 being none."""
    unit = next(impairment.unit for impairment in IMPAIRMENTS if impairment.key == key)
    return Field(default=0, ge=0, le=unit.most)


class Link(Strict):
    """One link's impairment, in netem's words. All amounts 0 is a clear link."""

    delay_ms: float = _amount("delay_ms")
    jitter_ms: float = _amount("jitter_ms")
    loss_pct: float = _amount("loss_pct")
    reorder_pct: float = _amount("reorder_pct")
    rate_mbit: float = _amount("rate_mbit")
    direction: Literal["egress", "ingress", "both"] = "egress"
    peer: str | None = None
    policer: bool = Field(default=False, description="frames above rate_mbit are dropped, not queued")

    @property
    def clear(self) -> bool:
        """Does this link change nothing?"""
        return not any(getattr(self, key) for key in AMOUNTS)

    @model_validator(mode="after")
    def _possible(self) -> Link:
        if why := mistake(self.model_dump()):
            raise ValueError(why)
        return self
