"""The driver's seam to the lab: a trial is one ``ansible-playbook``, its output goes beside the trial."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import playbook


@dataclass(frozen=True)
class AnsibleLab:
    """The lab of an inventory."""

    inventory: Path

    def run_trial(self, directory: Path) -> int:
        """Run ``directory/trial.json``; the playbook leaves the trial's files beside it."""
        with _log_to(directory / "ansible.log"):
            asked = {"trial_file": str((directory / "trial.json").resolve())}
            return playbook.run("trial.yml", self.inventory, asked, quiet=True)

    def clean(self) -> None:
        """Clear impairments, captures and the cluster on all machines."""
        playbook.run("clear.yml", self.inventory, quiet=True)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    before = os.environ.get("ANSIBLE_LOG_PATH")
    os.environ["ANSIBLE_LOG_PATH"] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ANSIBLE_LOG_PATH"]
        else:
            os.environ["ANSIBLE_LOG_PATH"] = before
