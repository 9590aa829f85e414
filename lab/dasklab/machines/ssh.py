"""ssh to the hosts of the inventory: the command line as the user could type it, and where sockets are."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory

UNATTENDED = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""Options with which ssh neither asks anything nor waits for long."""
MAX_SOCKET_BYTES = 107
"""The kernel's limit for the path of a socket."""
SOCKET_NAME_BYTES = 28
"""A slash, Ansible's name for a connection, and what ssh appends to it while it creates the socket."""


def command(inventory: Inventory, host: str, *options: str) -> list[str]:
    """Return the ssh command with the inventory's options, key, user and address.

    ``~/.ssh/config`` is ignored, because it could lead to another machine. To use it, set
    ``ansible_ssh_common_args: -F /home/me/.ssh/config`` in the inventory, which also affects Ansible.

    Raises:
        LabError: there is no such host, or it has no address.
    """
    common = shlex.split(inventory.optional(host, "ansible_ssh_common_args") or "")
    argv = ["ssh", "-F", "/dev/null", *options, *common]
    if key := inventory.optional(host, "ansible_ssh_private_key_file"):
        argv += ["-i", str(key)]
    return [*argv, login(inventory, host)]


def login(inventory: Inventory, host: str) -> str:
    """Return ``user@address`` of a host."""
    user, address = inventory.optional(host, "ansible_user"), inventory.value(host, "ansible_host")
    return f"{user}@{address}" if user else str(address)


def sockets_folder(state: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the folder of the sockets by which Ansible's tasks share connections to the hosts of a lab.

    Two labs may use the same addresses, so each has a folder of its own. ssh refuses a socket whose path is
    too long, as under a home folder with a long one.

    Args:
        state: the lab's state folder.
        environment: where HOME and XDG_RUNTIME_DIR are read.

    Raises:
        LabError: each possible folder has too long a path.
    """
    parents = [Path(environment.get("HOME", "~")).expanduser() / ".ansible" / "cp"]
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        parents.append(Path(runtime) / "dasklab")
    folders = [parent / hashlib.sha1(state.encode()).hexdigest()[:8] for parent in parents]
    for folder in folders:
        if len(os.fsencode(folder)) + SOCKET_NAME_BYTES <= MAX_SOCKET_BYTES:
            return str(folder)
    raise LabError(
        f"{folders[0]} is too long a path for ssh's sockets"
        f" (at most {MAX_SOCKET_BYTES - SOCKET_NAME_BYTES} bytes);"
        " set XDG_RUNTIME_DIR to a folder of yours with a short path"
    )
