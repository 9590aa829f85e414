"""Run a playbook, or a program of the lab's endpoint, and turn its failure into an error with a next step."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from dasklab.errors import LabError
from dasklab.machines import ssh
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.running.playbooks import playbook

UNREACHABLE = 4  # exit status of ansible-playbook when a machine does not answer


def play(
    name: str,
    lab: Inventory,
    options: Sequence[str] = (),
    extra_vars: Mapping[str, Any] | None = None,
    output: IO[str] | None = None,
) -> None:
    """Run ``playbooks/<name>``; exit with Ansible's status if a task failed, since Ansible has printed why.

    Raises:
        LabError: machines do not answer.
    """
    status = playbook.run(name, lab.path, extra_vars, options, output=output)
    if status == UNREACHABLE:
        raise LabError("the machines listed above do not answer", _unreachable_hint(name, lab))
    if status:
        sys.exit(status)


def answer(
    name: str,
    lab: Inventory,
    variable: str,
    options: Sequence[str] = (),
    extra_vars: Mapping[str, Any] | None = None,
    output: IO[str] | None = sys.stderr,
) -> Any:
    """Run a playbook that writes JSON to the file named by a variable, and return that JSON.

    Its progress goes to standard error, or to ``output``; None is standard output.

    Raises:
        LabError: machines do not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        play(name, lab, options, {**(extra_vars or {}), variable: str(file)}, output)
        return json.loads(file.read_text(encoding="utf-8"))


def _unreachable_hint(name: str, lab: Inventory) -> str:
    host = lab.hosts()[0]
    if not lab.has(host, "proxmox"):
        line = shlex.join(ssh.command(lab, host))
        return f"`{line}` must work from here, and likewise for each host; see {lab.path}"
    if name == "status.yml":
        return "`dasklab up` creates and starts missing machines"
    return "`dasklab status` shows which machines run, `dasklab doctor` what is missing here or on the node"


def run_endpoint_program(lab: Inventory, variable: str) -> None:
    """Run the program that an inventory variable such as ``endpoint_start`` holds, if it has one.

    Raises:
        LabError: the program failed; it has printed why.
    """
    argv = lab.optional(lab.hosts()[0], variable)
    if argv and (status := subprocess.run(argv, check=False).returncode):
        raise LabError(f"{shlex.join(argv)} ended with {status}", "its own message is above")
