"""Does once, before the forks of Ansible's tasks, what each would do anew; spares them what is in vain.

Ansible runs a task on a host in a fork of itself. There it reads a plugin that is used for the first time,
and works out the host's variables from the inventory's expressions; then the fork ends. The filters of this
project with what they import took a fork a quarter of a second of CPU, and the way to its host, a dozen
expressions that lead to each other, half of what was left; a trial has two hundred forks. Whose garbage is
collected with the fork: to look for it touches, and so copies, all that a fork shares, a quarter of a
trial's CPU.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins import loader
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar

DOCUMENTATION = """
name: read_once
type: aggregate
short_description: do once, before the forks of tasks, what each would do anew
version_added: "0.1"
description:
  - Loads plugins when a playbook starts, and resolves the variables that no task changes when a play does.
    Each task is a fork for each host, which would do both again.
"""

PLUGINS = (
    (loader.filter_loader, ("to_json",)),  # a filter or a test comes with all others of its kind
    (loader.test_loader, ("search",)),
    (loader.connection_loader, ("ssh", "local")),
    (loader.shell_loader, ("sh",)),
    (loader.lookup_loader, ("env", "file")),
    (loader.action_loader, ("lab_command", "lab_fetch", "lab_files", "proxmox_vm")),
)
# What no task changes once it can be told: what a trial asks for, who a host is, and the way to it.
# Each may need those before it.
SETTLED = (
    "trial",
    "lab_state_dir",
    "endpoint_facts",
    "guest",
    "lab_address",
    "ansible_host",
    "ansible_control_path_dir",
    "ansible_ssh_common_args",
    "ansible_ssh_private_key_file",
    "scheduler_address",
)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Reads when a playbook starts, works out variables when a play does; says nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "read_once"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Read the plugins, and let forks collect no garbage."""
        os.register_at_fork(after_in_child=gc.disable)
        for kind, names in PLUGINS:
            for name in names:
                kind.get(name, class_only=True)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Work out the settled variables of the play's hosts."""
        variables = play.get_variable_manager()
        told = variables.get_vars(play=play)
        for host in told["ansible_play_hosts_all"]:
            given = {**told, **told["hostvars"].raw_get(host)}  # the play's own variables, and the host's
            if settled := _settled(given, play.get_loader()):
                variables.set_nonpersistent_facts(host, settled)


def _settled(given: dict[str, Any], loader: Any) -> dict[str, Any]:
    """The values of what is settled, unless it is plain, was worked out before, or cannot be told yet."""
    templar, settled = Templar(loader=loader, variables=given), {}
    for name in (name for name in SETTLED if name in given and templar.is_template(given[name])):
        with suppress(AnsibleError):  # without an endpoint there is no way to a host: its first task says so
            settled[name] = given[name] = templar.template(given[name])
    return settled
