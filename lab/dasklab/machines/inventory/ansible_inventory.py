"""Read the inventory with Ansible's own engine, so that Python and the playbooks see the same lab.

Only this module imports Ansible. ``ansible-inventory --list`` would print unresolved expressions; here each
value is resolved when it is read.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dasklab.errors import LabError, did_you_mean
from dasklab.machines.inventory.groups import REQUIRED, missing_group
from dasklab.model.forms.strict import plain
from dasklab.model.forms.yaml_file import require_bounded
from dasklab.paths import INVENTORIES, IS_CHECKOUT, PLAYBOOKS, SHARE, ansible_settings
from dasklab.terminal import echo

DEFAULT = INVENTORIES / "hosts.yml"
YAML_SUFFIXES = {".yml", ".yaml"}
VAULT_HINT = (
    "name a file with the vault's password: --vault-password-file, ANSIBLE_VAULT_PASSWORD_FILE,"
    " or vault_password_file in ansible.cfg"
)


def default_inventory() -> Path:
    """Return ``./inventory/hosts.yml``, which `dasklab init` writes, or in a checkout its own.

    Elsewhere no lab is meant, so the file that is returned does not exist.
    """
    local = Path("inventory/hosts.yml").absolute()
    in_checkout = IS_CHECKOUT and local.resolve().is_relative_to(SHARE)
    return DEFAULT if in_checkout and not local.exists() else local


class Inventory:
    """The machines of a lab and their variables.

    Raises:
        LabError: the file is missing, or is not an inventory with the groups of a lab.
    """

    def __init__(self, path: Path = DEFAULT) -> None:
        os.environ["ANSIBLE_CONFIG"] = ansible_settings(path)["ANSIBLE_CONFIG"]  # the same as for playbooks
        from ansible.errors import AnsibleError
        from ansible.inventory.manager import InventoryManager
        from ansible.parsing.dataloader import DataLoader
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        if not path.exists():
            hint = "to name another lab: -i FOLDER/inventory/hosts.yml; to create one: dasklab init mylab"
            if path == default_inventory():
                raise LabError(f"there is no lab in {Path.cwd()}: it has no inventory/hosts.yml", hint)
            raise LabError(f"inventory {path} does not exist", hint)
        _refuse_broken_yaml(path)
        self.path = path
        _load_plugins()
        self._loader = DataLoader()
        self._loader.set_basedir(str(PLAYBOOKS))  # its group_vars apply to every inventory
        _load_vault_secrets(self._loader)
        warnings = io.StringIO()  # one of each parser, if no parser can read the file
        try:
            with redirect_stderr(warnings):
                self._manager = InventoryManager(loader=self._loader, sources=[str(path)])
        except AnsibleError as error:
            hint = f"{DEFAULT} shows what an inventory looks like"
            raise LabError(f"inventory {path}: {_first_line(error)}", hint) from None
        echo(warnings.getvalue(), err=True, nl=False)
        self._variables = VariableManager(loader=self._loader, inventory=self._manager)
        # ansible-playbook sets these, and expressions of the inventory may use them.
        self._playbook = {"ansible_playbook_python": sys.executable, "playbook_dir": str(PLAYBOOKS)}
        self._hostvars = HostVars(self._manager, self._variables, self._loader)
        self._host_variables: dict[str, dict[str, Any]] = {}
        if missing := missing_group({name: self.hosts(name) for name in REQUIRED}) or self._missing_groups():
            raise LabError(f"inventory {path} {missing}", f"{DEFAULT} shows the groups that a lab has")

    def hosts(self, group: str = "lab") -> list[str]:
        """Return the hosts of a group, in the inventory's order."""
        if group not in self._manager.groups:
            return []
        return [host.name for host in self._manager.groups[group].get_hosts()]

    def _missing_groups(self) -> str | None:
        """Return a message about machines that the lab creates and that lack a group; None if none do."""
        names = self.hosts("lab")
        if not self.has(names[0], "proxmox"):
            return None
        ungrouped = [name for name in names if name not in self.hosts("virtual_machines")]
        if ungrouped:
            return f"has {', '.join(ungrouped)} in group 'lab' but not in group 'virtual_machines'"
        if not self.hosts("hypervisors") and "groups['hypervisors']" in str(self._raw(names[0])["proxmox"]):
            return "has no hosts in group 'hypervisors' (the nodes), and proxmox.node is the first of them"
        return None

    def names(self, host: str) -> set[str]:
        """Return the names of all variables of a host."""
        return set(self._raw(host))

    def keys(self, host: str, name: str) -> set[str]:
        """Return the keys of a variable that is a mapping; none if it is missing or something else."""
        raw = self._raw(host).get(name)
        return set(raw) if isinstance(raw, dict) else set()

    def has(self, host: str, name: str) -> bool:
        """Return whether a host has a variable, even if it cannot be resolved."""
        return name in self._raw(host)

    def value(self, host: str, name: str) -> Any:
        """Return a resolved variable of a host as plain Python data.

        Raises:
            LabError: the variable is missing or cannot be resolved.
        """
        from ansible.errors import AnsibleError
        from ansible.template import Templar

        raw = self._raw(host)
        if name not in raw and host in self.hosts("hypervisors"):
            hosts = ", ".join(self.hosts())
            raise LabError(f"{host} is a node, not a host of the lab; there are {hosts}")
        if name not in raw:
            raise LabError(f"inventory {self.path}: host {host} has no variable {name!r}")
        try:
            return plain(Templar(loader=self._loader, variables=raw).template(raw[name]))
        except AnsibleError as error:
            message = f"inventory {self.path}: {host}: {name}: {_first_line(error)}"
            raise LabError(message, _vault_hint(error)) from None

    def optional(self, host: str, name: str) -> Any:
        """Return a resolved variable, or None if the host does not have it."""
        return self.value(host, name) if self.has(host, name) else None

    def _raw(self, host: str) -> dict[str, Any]:
        if host in self._host_variables:
            return self._host_variables[host]
        ansible_host = self._manager.get_host(host)
        if ansible_host is None:
            names = self.hosts("lab")
            suggestion = did_you_mean(host, names)
            raise LabError(
                f"no host {host!r} in inventory {self.path}; there are {', '.join(names)}{suggestion}"
            )
        from ansible.errors import AnsibleError

        try:
            variables: dict[str, Any] = self._variables.get_vars(host=ansible_host)
        except AnsibleError as error:  # a file of variables that the vault's password does not open
            raise LabError(f"inventory {self.path}: {_first_line(error)}", _vault_hint(error)) from None
        self._host_variables[host] = {**variables, "hostvars": self._hostvars, **self._playbook}
        return self._host_variables[host]


@cache
def _load_plugins() -> None:
    from ansible.plugins.loader import add_all_plugin_dirs, init_plugin_loader

    init_plugin_loader([])
    add_all_plugin_dirs(str(PLAYBOOKS))


def _load_vault_secrets(loader: Any) -> None:
    """Give Ansible the passwords of its vault: those that ansible-playbook will take from the same settings.

    Raises:
        LabError: a password cannot be read.
    """
    from ansible import constants
    from ansible.errors import AnsibleError
    from ansible.parsing import vault

    setting = constants.config.get_config_value
    sources = [*setting("DEFAULT_VAULT_IDENTITY_LIST"), setting("DEFAULT_VAULT_PASSWORD_FILE")]
    secrets = []
    for source in filter(None, sources):
        vault_id, _, file = source.rpartition("@")
        try:
            secret = vault.get_file_vault_secret(file, vault_id=vault_id or None, loader=loader)
            secret.load()
        except AnsibleError as error:
            raise LabError(_first_line(error), VAULT_HINT) from None
        secrets.append((vault_id or constants.DEFAULT_VAULT_IDENTITY, secret))
    loader.set_vault_secrets(secrets)
    if context := getattr(vault, "VaultSecretsContext", None):  # since ansible-core 2.19; one per process
        if present := context.current(optional=True):
            present.secrets[:] = secrets
        else:
            context.initialize(context(secrets))


def _vault_hint(error: Exception) -> str | None:
    return VAULT_HINT if "vault" in str(error).lower() else None


def _refuse_broken_yaml(path: Path) -> None:
    """Report the line of a syntax error, or of aliases that grow, in the files that Ansible will read.

    Ansible would report what each of its parsers thinks of the file, and resolve the aliases for hours.
    """
    for file in _yaml_files(path):
        try:
            require_bounded(file.read_text(encoding="utf-8"))
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else "?"
            raise LabError(f"inventory {file}, line {line}: {error.problem}") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue  # Ansible names these well


def _yaml_files(path: Path) -> Iterator[Path]:
    """Yield the YAML files of an inventory: of hosts, and of the variables of groups and hosts."""
    folder = path if path.is_dir() else path.parent
    files = [path] if path.is_file() else folder.iterdir()
    yield from (file for file in files if file.suffix in YAML_SUFFIXES)
    for name in ("group_vars", "host_vars"):
        files = sorted((folder / name).rglob("*"))
        yield from (file for file in files if file.suffix in {*YAML_SUFFIXES, ".json", ""} and file.is_file())


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
