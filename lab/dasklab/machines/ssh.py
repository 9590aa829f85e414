"""The ssh command line for a host of the inventory, as the user could type it."""

from __future__ import annotations

import shlex

from dasklab.machines.inventory.ansible_inventory import Inventory


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
