"""The impairments of a host's lab link; their amounts are those of ``dasklab.model.settings.impairments``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from dasklab.model.forms.strict import Strict
from dasklab.model.settings.impairments import AMOUNTS, IMPAIRMENTS, find_mistake

ROWS = {impairment.key: impairment for impairment in IMPAIRMENTS}


def _amount(key: str) -> Any:
    """Make a field with the range and the title of its row in the registry."""
    return Field(default=0, ge=0, le=ROWS[key].unit.most, description=ROWS[key].title)


class Link(Strict):
    """The impairments of one link. With all amounts at 0 the link is clear."""

    delay_ms: float = _amount("delay_ms")
    jitter_ms: float = _amount("jitter_ms")
    loss_pct: float = _amount("loss_pct")
    reorder_pct: float = _amount("reorder_pct")
    rate_mbit: float = _amount("rate_mbit")
    direction: Literal["egress", "ingress", "both"] = "egress"
    peer: str | None = None
    policer: bool = Field(default=False, description="drop frames above rate_mbit instead of queueing them")

    @property
    def clear(self) -> bool:
        """Whether this link changes nothing."""
        return not any(getattr(self, key) for key in AMOUNTS)

    @model_validator(mode="after")
    def _possible(self) -> Link:
        if mistake := find_mistake(self.model_dump()):
            raise ValueError(mistake)
        return self
