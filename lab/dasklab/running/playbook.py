"""Starts ``ansible-playbook``: the one place where Python hands over to Ansible."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dasklab import extras
from dasklab.errors import LabError
from dasklab.paths import PLAYBOOKS, SHARE, ansible_settings
from dasklab.running import lock
from dasklab.running.watchdog import Watchdog

POLL_S = 0.5


class PlaybookEndedError(LabError):
    """Ansible did not get to its end: it was killed, or had to be. Its ``always`` blocks did not run."""


def command(
    playbook: str,
    inventory: Path,
    extra_vars: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line that runs ``playbooks/<playbook>`` (pure)."""
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "-i", str(inventory), str(PLAYBOOKS / playbook), *options]
    return [*argv, "-e", json.dumps(dict(extra_vars))] if extra_vars else argv


def run(
    playbook: str,
    inventory: Path,
    extra_vars: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    quiet: bool = False,
    limit_s: float | None = None,
) -> int:
    """Run a playbook with its output on this terminal (or none, when ``quiet``) and return its exit code.

    On Ctrl-C Ansible ends at once, without its ``always`` blocks: what must be cleared on the machines
    is the caller's to clear, and expires there by itself.

    Raises:
        LabError: ansible-playbook is not installed.
        PlaybookEndedError: it was killed, took longer than ``limit_s`` or would have waited for ever.
            Nothing of it is left at work.
        KeyboardInterrupt: the user stopped it; Ansible has ended by then.
    """
    argv = command(playbook, inventory, extra_vars, options)
    if not Path(argv[0]).exists():
        raise extras.not_installed("ansible")
    # Ansible refuses a locale that is not UTF-8, whatever the user's is.
    environment = {**os.environ, **ansible_settings(inventory), "LC_ALL": "C.UTF-8"}
    output = subprocess.DEVNULL if quiet else None
    # In a group of its own: a terminal's Ctrl-C comes to us alone, and Ansible is ended without a traceback.
    with subprocess.Popen(
        argv, cwd=SHARE, env=environment, stdout=output, process_group=0, pass_fds=lock.inheritable()
    ) as process:
        try:
            trouble = _wait(process, Watchdog(process.pid, limit_s))
        except KeyboardInterrupt:
            _end(process)
            raise
        if trouble:
            _end(process)
            raise PlaybookEndedError(f"{playbook} was ended: {trouble}")
    if process.returncode < 0:
        lock.end_heirs()  # workers outlive an Ansible that was killed
        name = signal.Signals(-process.returncode).name
        hint = "for want of memory? dmesg shows it: out of memory, killed process"
        raise PlaybookEndedError(f"{playbook}: ansible-playbook was killed by {name}", hint)
    return process.returncode


def _wait(process: subprocess.Popen[bytes], watchdog: Watchdog) -> str | None:
    """Wait until Ansible has ended; return why it has to be ended if it will not by itself."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
            return None
        if trouble := watchdog.verdict():
            return trouble


def _end(process: subprocess.Popen[bytes], patience_s: float = 10) -> None:
    """End Ansible, which ends its workers and what they run on the controller.

    It alone is told: a worker that it is just forking would answer with a traceback.
    """
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    lock.end_heirs()
