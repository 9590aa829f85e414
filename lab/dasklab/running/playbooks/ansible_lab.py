"""Run trials with Ansible: one ``ansible-playbook`` per trial, with its log in the trial's folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from dasklab.errors import LabError
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.experiments.order import Orders
from dasklab.model.files import Failed
from dasklab.results.run import Trial
from dasklab.running.plan.setup import lab_hosts
from dasklab.running.plan.trials import deadline_s
from dasklab.running.playbooks import collect, playbook
from dasklab.running.playbooks.orders import orders

LOG = "ansible.log"  # in the trial's folder
PHASE_DONE = "s  Run phase '"  # in the log; the task is in playbooks/tasks/phase.yml
RESET_LIMIT_S = 1800.0  # recreating emulated machines takes minutes
INDENT = " " * 10  # of the lines below FAILED in the log, see playbooks/callback_plugins/dasklab.py


@dataclass(frozen=True)
class AnsibleLab:
    """The lab of an inventory, as the driver uses it (see ``driver.TrialRunner``)."""

    inventory: Path

    @cached_property
    def _lab(self) -> Inventory:
        return Inventory(self.inventory)

    def run_trial(self, trial: Trial) -> int:
        """Run a trial; its results are written to its folder.

        Returns:
            The playbook's exit status. If it is not 0, ``failed.json`` says why.

        Raises:
            LabError: the playbook failed before the trial began, or it was stopped, for instance at its
                deadline. In the second case the lab has been reset.
        """
        directory, requested = trial.folder, trial.requested
        (directory / Failed.FILE).unlink(missing_ok=True)
        shutil.rmtree(directory / collect.FOLDER, ignore_errors=True)
        (directory / collect.FOLDER).mkdir()
        trial.write(Orders(trial=orders(requested, lab_hosts(self._lab))))
        variables = {"trial_directory": str(directory.resolve())}
        try:
            with _log_to(directory / LOG):
                status = playbook.run(
                    "trial.yml", self.inventory, variables, quiet=True, limit_s=deadline_s(requested)
                )
        except playbook.PlaybookEndedError:
            self.reset()
            raise
        if not status:
            collect.collect(directory, next(iter(self._lab.hosts("hypervisors")), ""))
        elif failed := collect.failure(directory):
            trial.write(failed)
        else:
            raise LabError(_cause(directory / LOG) or f"ansible-playbook ended with {status}")
        return status

    def reset(self) -> None:
        """Make links, captures, cluster, bridge and NICs match the inventory again.

        Raises:
            LabError: that failed.
        """
        if playbook.run("reset.yml", self.inventory, quiet=True, limit_s=RESET_LIMIT_S):
            raise LabError("the lab could not be reset to match its inventory", "to repair it: dasklab up")

    def require_endpoint(self) -> None:
        presence.require_endpoint(self._lab)


def current_phase(directory: Path) -> str | None:
    """Return the name of the phase that a running trial is in; None if Ansible has not begun the trial."""
    try:
        count = (directory / LOG).read_text(errors="replace", encoding="utf-8").count(PHASE_DONE)
        phases = json.loads((directory / Orders.FILE).read_bytes())["trial"]["phases"]
    except FileNotFoundError:
        return None
    names = [phase["name"] for phase in phases]
    return names[count] if count < len(names) else "collect"


def _cause(log: Path) -> str | None:
    """Return the first error in Ansible's log as ``host: task: message``; None if the log has none.

    The log has lines such as ``<time> p=1 u=root n=ansible ERROR| [ERROR]: message``, or ``FAILED  <host>:
    <task>`` with the module's message indented below. Of a long message the first and last line are returned.
    """
    if not log.exists():
        return None
    lines = [
        line.partition("| ")[2].rstrip()
        for line in log.read_text(errors="replace", encoding="utf-8").splitlines()
    ]
    for number, line in enumerate(lines):
        if line.startswith("[ERROR]"):
            return line
        if line.lstrip().startswith("FAILED  "):
            below = takewhile(lambda text: text.startswith(INDENT), lines[number + 1 :])
            message = [text.strip() for text in below]
            place = line.lstrip().removeprefix("FAILED  ")
            shortened = "; ".join(dict.fromkeys([*message[:1], *message[-1:]]))
            return f"{place}: {shortened}" if message else place
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
