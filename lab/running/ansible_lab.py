"""The driver's seam to the lab: a trial is one ``ansible-playbook``, its output goes beside the trial."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.running import playbook


@dataclass(frozen=True)
class AnsibleLab:
    """The lab of an inventory."""

    inventory: Path

    def run_trial(self, directory: Path) -> int:
        """Run ``directory/trial.json``; the playbook leaves the trial's files beside it."""
        if _end_leftover(directory):
            self.reset()
        with _log_to(directory / "ansible.log"):
            asked = {"trial_directory": str(directory.resolve())}
            status = playbook.run("trial.yml", self.inventory, asked, quiet=True)
        if status and not (directory / "failed.json").exists():
            raise LabError(_first_error(directory / "ansible.log") or f"ansible-playbook ended with {status}")
        return status

    def reset(self) -> None:
        """Bring the lab back to what the inventory says: links, captures, cluster, bridge and NICs.

        Raises:
            LabError: it could not be brought back.
        """
        if playbook.run("reset.yml", self.inventory, quiet=True):
            raise LabError(
                "the lab is not as the inventory has it", "dasklab up mends it, and says what fails"
            )


@contextmanager
def alone(inventory: Path) -> Iterator[None]:
    """Keep other commands that change an inventory's lab away from it: they would undo each other's links.

    Raises:
        LabError: another one is at work there.
    """
    handle = os.open(inventory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy = f"another command is at work on the lab of {inventory}"
            raise LabError(busy, "wait for it, or end it by Ctrl-C") from None
        yield
    finally:
        os.close(handle)


def _first_error(log: Path) -> str | None:
    """The line with which Ansible's trouble began: ``<time> p=1 u=root n=ansible ERROR| [ERROR]: what``."""
    lines = (line.partition("| ")[2].strip() for line in _read(log).decode(errors="replace").splitlines())
    return next((line for line in lines if line.startswith(("[ERROR]", "FAILED"))), None)


def _end_leftover(directory: Path, patience_s: float = 10) -> bool:
    """End the playbook that a killed driver left running in this trial's run; tells whether there was one."""
    mine = str(directory.resolve().parent).encode()
    every = Path("/proc").glob("[0-9]*/cmdline")
    left = [path for path in every if mine in (words := _read(path)) and b"ansible-playbook" in words]
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for path in (path for path in left if mine in _read(path)):
            with suppress(ProcessLookupError):  # it leads a group of its own, with all that it started
                os.killpg(os.getpgid(int(path.parent.name)), signum)
        until = time.monotonic() + patience_s
        while any(mine in _read(path) for path in left) and time.monotonic() < until:
            time.sleep(0.1)
    for path in directory.iterdir() if left else ():
        if path.name != "trial.json":
            path.unlink()
    return bool(left)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process is gone
        return b""


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
