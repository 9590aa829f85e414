"""How ssh comes to a host of the inventory: the command line that the user could type."""

from __future__ import annotations

import shlex

from dasklab.machines.inventory import Inventory


def command(inventory: Inventory, host: str, *options: str) -> list[str]:
    """Return ``ssh`` with the inventory's options, key and user, up to the address.

    The user's ``~/.ssh/config`` does not count: it could lead elsewhere. An inventory that wants it says so
    in ``ansible_ssh_common_args`` (``-F /home/me/.ssh/config``), for Ansible too.

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
