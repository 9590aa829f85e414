"""Reads the Ansible inventory with Ansible's own engine, so that Python and the playbooks see the same lab.

This is the one module that imports Ansible. ``ansible-inventory --list`` would print
expressions unresolved; here each value is resolved when it is asked for.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dasklab.errors import LabError, did_you_mean
from dasklab.machines.groups import REQUIRED, missing_group
from dasklab.model.strict import plain
from dasklab.paths import INVENTORIES, IS_CHECKOUT, PLAYBOOKS, ansible_settings

DEFAULT = INVENTORIES / "hosts.yml"


def default_inventory() -> Path:
    """Return ``./inventory/hosts.yml``, which `dasklab init` writes; without it a checkout's own."""
    own = Path("inventory/hosts.yml").absolute()
    return own if own.exists() or not IS_CHECKOUT else DEFAULT


class Inventory:
    """The machines of a lab and their variables.

    Raises:
        LabError: the file is missing or is not an inventory with a group ``lab``.
    """

    def __init__(self, path: Path = DEFAULT) -> None:
        os.environ["ANSIBLE_CONFIG"] = ansible_settings(path)["ANSIBLE_CONFIG"]  # as for the playbooks
        from ansible.errors import AnsibleError
        from ansible.inventory.manager import InventoryManager
        from ansible.parsing.dataloader import DataLoader
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        if not path.exists():
            hint = f"the default one is {DEFAULT}" if IS_CHECKOUT else "make one: dasklab init mylab"
            raise LabError(f"inventory {path} does not exist", hint)
        _refuse_broken_yaml(path)
        self.path = path
        _load_plugins()
        self._loader = DataLoader()
        self._loader.set_basedir(str(PLAYBOOKS))  # group_vars there count for every inventory
        try:
            self._manager = InventoryManager(loader=self._loader, sources=[str(path)])
        except AnsibleError as error:
            raise LabError(f"inventory {path}: {_first_line(error)}") from None
        self._variables = VariableManager(loader=self._loader, inventory=self._manager)
        # ansible-playbook sets these itself; expressions of the inventory may use them
        self._playbook = {"ansible_playbook_python": sys.executable, "playbook_dir": str(PLAYBOOKS)}
        self._hostvars = HostVars(self._manager, self._variables, self._loader)
        self._host_variables: dict[str, dict[str, Any]] = {}
        if missing := missing_group({name: self.hosts(name) for name in REQUIRED}) or self._missing_groups():
            raise LabError(f"inventory {path} {missing}", f"{DEFAULT} shows the groups that a lab has")

    def hosts(self, group: str = "lab") -> list[str]:
        """Names of the hosts in ``group``, in the inventory's order."""
        if group not in self._manager.groups:
            return []
        return [host.name for host in self._manager.groups[group].get_hosts()]

    def _missing_groups(self) -> str | None:
        """Say which group machines that the lab makes lack."""
        names = self.hosts("lab")
        if not self.has(names[0], "proxmox"):
            return None
        strangers = [name for name in names if name not in self.hosts("virtual_machines")]
        if strangers:
            return f"has {', '.join(strangers)} in group 'lab' but not in group 'virtual_machines'"
        if not self.hosts("hypervisors") and "groups['hypervisors']" in str(self._raw(names[0])["proxmox"]):
            return "has no hosts in group 'hypervisors' (the nodes), and proxmox.node is the first of them"
        return None

    def names(self, host: str) -> set[str]:
        """The names of all variables of ``host``."""
        return set(self._raw(host))

    def keys(self, host: str, name: str) -> set[str]:
        """The keys of a variable that is a mapping, unresolved; none where it is another or missing."""
        raw = self._raw(host).get(name)
        return set(raw) if isinstance(raw, dict) else set()

    def has(self, host: str, name: str) -> bool:
        """Whether ``host`` has a variable ``name`` (resolved or not)."""
        return name in self._raw(host)

    def value(self, host: str, name: str) -> Any:
        """Return the resolved variable ``name`` of ``host`` as plain Python data.

        Raises:
            LabError: the variable is missing or cannot be resolved.
        """
        from ansible.errors import AnsibleError
        from ansible.template import Templar

        raw = self._raw(host)
        if name not in raw:
            raise LabError(f"inventory {self.path}: host {host} has no variable {name!r}")
        try:
            return plain(Templar(loader=self._loader, variables=raw).template(raw[name]))
        except AnsibleError as error:
            raise LabError(f"inventory {self.path}: {host}: {name}: {_first_line(error)}") from None

    def optional(self, host: str, name: str) -> Any:
        """Return the variable, or ``None`` where the host has none."""
        return self.value(host, name) if self.has(host, name) else None

    def _raw(self, host: str) -> dict[str, Any]:
        if host in self._host_variables:
            return self._host_variables[host]
        found = self._manager.get_host(host)
        if found is None:
            known = self.hosts("lab")
            hint = did_you_mean(host, known)
            raise LabError(f"no host {host!r} in inventory {self.path}; there are {', '.join(known)}{hint}")
        variables: dict[str, Any] = self._variables.get_vars(host=found)
        self._host_variables[host] = {**variables, "hostvars": self._hostvars, **self._playbook}
        return self._host_variables[host]


@cache
def _load_plugins() -> None:
    from ansible.plugins.loader import add_all_plugin_dirs, init_plugin_loader

    init_plugin_loader([])
    add_all_plugin_dirs(str(PLAYBOOKS))


def _refuse_broken_yaml(path: Path) -> None:
    """Name the line of a syntax error; Ansible would say what each of its readers thinks of the file."""
    if path.suffix not in {".yml", ".yaml"}:
        return
    try:
        for _ in yaml.parse(path.read_text(), yaml.CSafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise LabError(f"inventory {path}, line {line}: {error.problem}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
