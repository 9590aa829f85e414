"""Call the guest program of a host over ssh, as one could by hand."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dasklab.errors import LabError
from dasklab.machines import ssh
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.running.playbooks.orders import PROGRAMS

PROGRAM = f"{PROGRAMS}/dasklab-guest"
MAX_CONNECTIONS = 20  # at the same time, as Ansible's forks
SSH_FAILED, NO_SUCH_COMMAND = 255, 127  # exit statuses


def call(lab: Inventory, host: str, part: str, action: str, **arguments: object) -> dict[str, Any]:
    """Return the answer of one step on a host.

    Raises:
        LabError: the host does not answer, has no guest program, or refuses the step; the message is its own.
    """
    words = [PROGRAM, part, action, *([json.dumps(arguments)] if arguments else [])]
    return _answer(host, [*ssh.command(lab, host), shlex.join(words)])


def call_each(
    lab: Inventory, hosts: Sequence[str], part: str, action: str
) -> list[dict[str, Any] | LabError]:
    """Return the answers of hosts that are asked at the same time; instead of an answer, the error."""

    def answer_or_error(host: str, argv: Sequence[str]) -> dict[str, Any] | LabError:
        try:
            return _answer(host, argv)
        except LabError as error:
            return error

    words = shlex.join([PROGRAM, part, action])
    # Made before the threads start: Ansible's templates, which addresses may be, are not safe in several.
    commands = [[*ssh.command(lab, host, *ssh.UNATTENDED), words] for host in hosts]
    with ThreadPoolExecutor(MAX_CONNECTIONS) as pool:
        return list(pool.map(answer_or_error, hosts, commands))


def _answer(host: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return what the guest program of a host prints.

    Raises:
        LabError: as ``call``.
    """
    process = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if process.returncode == 0:
        answer: dict[str, Any] = json.loads(process.stdout)
        return answer
    message = (
        process.stderr.strip()
        .rpartition("\n")[2]
        .removeprefix("dasklab-guest: ")
        .removeprefix("unsupported: ")
    )
    raise failure(host, process.returncode, message)


def failure(host: str, status: int, message: str) -> LabError:
    """Return the error for a command that ended with ``status`` on a host."""
    if status == SSH_FAILED:
        return LabError(f"{host} does not answer: {message}", "`dasklab status` shows which machines run")
    if status == NO_SUCH_COMMAND:
        return LabError(f"{host}: a program is missing: {message}", "to install it: dasklab up")
    return LabError(f"{host}: {message or f'the command ended with status {status}'}")
