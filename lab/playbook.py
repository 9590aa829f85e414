"""Starts ``ansible-playbook``: the one place where Python hands over to Ansible."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.inventory import ROOT


def command(
    playbook: str,
    inventory: Path,
    extra_vars: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line that runs ``playbooks/<playbook>`` (pure)."""
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "-i", str(inventory), str(ROOT / "playbooks" / playbook), *options]
    return [*argv, "-e", json.dumps(dict(extra_vars))] if extra_vars else argv


def run(
    playbook: str,
    inventory: Path,
    extra_vars: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    quiet: bool = False,
) -> int:
    """Run a playbook with its output on this terminal (or none, when ``quiet``) and return its exit code.

    On Ctrl-C Ansible ends at once, without its ``always`` blocks: what must be cleared on the machines
    is the caller's to clear, and expires there by itself.

    Raises:
        LabError: ansible-playbook is not installed.
        KeyboardInterrupt: the user stopped it; Ansible has ended by then.
    """
    argv = command(playbook, inventory, extra_vars, options)
    if not Path(argv[0]).exists():
        raise LabError(f"{argv[0]} does not exist", "install the project: pip install -e .")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    output = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=output) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            _wind_down(process)
            raise


def _wind_down(process: subprocess.Popen[bytes], patience_s: float = 60) -> None:
    """Wait for Ansible, which got the same Ctrl-C; end it when it does not end."""
    for signum in (None, signal.SIGINT, signal.SIGTERM):
        if signum is not None:
            process.send_signal(signum)
        try:
            process.wait(patience_s)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
    process.kill()
