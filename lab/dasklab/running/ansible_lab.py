"""The driver's seam to the lab: a trial is one ``ansible-playbook``, its output goes beside the trial."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from dasklab.errors import LabError
from dasklab.model.files import Failed
from dasklab.model.trial import Trial
from dasklab.results.storage import store
from dasklab.running import playbook
from dasklab.running.trials import deadline_s

LOG = "ansible.log"  # beside the trial
RESET_LIMIT_S = 1800.0  # machines that have to be made anew take minutes where they are emulated
INDENT = " " * 10  # of the lines below a FAILED one in the log: playbooks/callback_plugins/dasklab.py


@dataclass(frozen=True)
class AnsibleLab:
    """The lab of an inventory."""

    inventory: Path

    def run_trial(self, directory: Path) -> int:
        """Run ``directory/trial.json``; the playbook leaves the trial's files beside it.

        Raises:
            LabError: the playbook did not get far enough to write failed.json, or it was ended, for
            instance because the trial's deadline passed. Then the lab has been reset.
        """
        limit_s = deadline_s(store.need(Trial, directory))
        variables = {"trial_directory": str(directory.resolve())}
        try:
            with _log_to(directory / LOG):
                status = playbook.run("trial.yml", self.inventory, variables, quiet=True, limit_s=limit_s)
        except playbook.PlaybookEndedError:
            self.reset()
            raise
        if status and not (directory / Failed.FILE).exists():
            raise LabError(_cause(directory / LOG) or f"ansible-playbook ended with {status}")
        return status

    def reset(self) -> None:
        """Bring the lab back to what the inventory says: links, captures, cluster, bridge and NICs.

        Raises:
            LabError: it could not be brought back.
        """
        if playbook.run("reset.yml", self.inventory, quiet=True, limit_s=RESET_LIMIT_S):
            raise LabError("the lab could not be reset to what its inventory says", "dasklab up")


def _cause(log: Path) -> str | None:
    """The first trouble in Ansible's log, as ``host: task: what``; None if the log has none.

    A line there is ``<time> p=1 u=root n=ansible ERROR| [ERROR]: what``, or ``FAILED  <host>: <task>`` with
    the words of the module below it. Of many words the first and the last line are kept.
    """
    if not log.exists():
        return None
    lines = [line.partition("| ")[2].rstrip() for line in log.read_text(errors="replace").splitlines()]
    for number, line in enumerate(lines):
        if line.startswith("[ERROR]"):
            return line
        if line.lstrip().startswith("FAILED  "):
            words = [
                text.strip() for text in takewhile(lambda text: text.startswith(INDENT), lines[number + 1 :])
            ]
            place = line.lstrip().removeprefix("FAILED  ")
            return ": ".join([place, "; ".join(dict.fromkeys([*words[:1], *words[-1:]]))]) if words else place
    return None


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
