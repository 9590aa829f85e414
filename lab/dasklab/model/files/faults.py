"""faults.json: what happened to the hosts whose faults the trial requested."""

from __future__ import annotations

from typing import ClassVar

from dasklab.model.files.quantities import Amount
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict


class ObservedFault(Strict):
    """One host's fault; ``state`` is that of its link or service meanwhile.

    ``at_s`` counts from the start of the first timed repeat, ``lasted_s`` until the fault was over; null
    means that this did not happen.
    """

    at_s: Amount | None
    lasted_s: Amount | None
    state: str


class ObservedFaults(Document):
    """The faults of a trial, by host."""

    FILE: ClassVar[str] = "faults.json"

    hosts: dict[str, ObservedFault] = {}
