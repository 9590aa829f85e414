"""experiment.json: what one execution of an experiment started with."""

from __future__ import annotations

from typing import Any, ClassVar

from dasklab.model.experiments.trial import Setup
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import FileName


class Campaign(Document):
    """The experiment and the lab at the start of a run.

    ``only`` is the cell that the run is limited to, ``order`` the names of all trials in the order they run.
    """

    FILE: ClassVar[str] = "experiment.json"

    name: FileName
    quick: bool
    seed: int
    only: str | None
    order: tuple[FileName, ...]
    git_revision: str | None
    setup: Setup
    experiment: dict[str, Any]
