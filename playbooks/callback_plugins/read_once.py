"""Reads plugins once that each task would read anew on each host.

Ansible runs a task on a host in a fork of itself, and reads a plugin when it is first used: in a fork, which
then ends. The filters of this project with what they import, and what Ansible knows of its connections, took
a fork a quarter of a second of CPU; a trial has two hundred forks. What is read before them is theirs too.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins import loader
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: read_once
type: aggregate
short_description: read plugins before the forks that use them
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Reads when a playbook starts; says nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "read_once"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Read them; a filter or a test comes with all others of its kind."""
        loader.filter_loader.get("to_json")
        loader.test_loader.get("search")
        for kind, names in (
            (loader.connection_loader, ("ssh", "local")),
            (loader.shell_loader, ("sh",)),
            (loader.lookup_loader, ("env", "file")),
            (loader.action_loader, ("lab_command", "lab_fetch", "lab_files", "proxmox_vm")),
        ):
            for name in names:
                kind.get(name, class_only=True)
