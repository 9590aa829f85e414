"""Checks of provisioned hosts, by testinfra.

    pytest tests/infra --ansible-inventory=inventory/hosts.yml

Each module checks what one role's README says, on the hosts of its ``testinfra_hosts``.

testinfra reads an inventory without resolving its expressions, so it gets a copy with resolved values.
Commands then use one ssh connection to each host, which stays open, and no Ansible.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory, default_inventory

os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # testinfra starts ansible by name
GUEST = "/opt/dasklab/bin/dasklab-guest"
GROUPS = ("lab", "virtual_machines", "dask_client", "dask_scheduler", "dask_workers", "hypervisors")
# Ansible's own variables, and secrets of the endpoint.
LEFT_OUT = (
    "ansible_config_file", "ansible_facts", "ansible_playbook_python", "ansible_version",
    "endpoint_", "group_names", "groups", "hostvars", "inventory_", "playbook_dir", "proxmox",
)  # fmt: skip
COPY = pytest.StashKey[Path]()
INVENTORY = pytest.StashKey[Inventory]()


def pytest_configure(config: pytest.Config) -> None:
    """Give testinfra a copy of the inventory whose variables have plain values.

    Raises:
        UsageError: the inventory cannot be read, or its lab is not up.
    """
    if config.option.collectonly:
        return
    source = Path(config.option.ansible_inventory or default_inventory()).absolute()
    folder = Path(tempfile.mkdtemp(prefix="dasklab-checks-"))
    config.stash[COPY] = folder
    try:
        config.stash[INVENTORY] = Inventory(source)
        resolved = resolve(config.stash[INVENTORY])
    except LabError as error:
        raise pytest.UsageError(f"{error}; the checks need a lab that is up, and its inventory") from None
    copy = folder / "hosts.yml"
    copy.write_text(json.dumps(resolved), encoding="utf-8")
    config.option.ansible_inventory = str(copy)


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(COPY, None):
        shutil.rmtree(folder, ignore_errors=True)


def resolve(inventory: Inventory) -> dict[str, Any]:
    """Return an inventory of plain values, in Ansible's format."""
    members = {group: inventory.hosts(group) for group in GROUPS}
    hosts = {name: variables(inventory, name) for name in sorted(set().union(*members.values()))}
    groups = {group: {"hosts": dict.fromkeys(names)} for group, names in members.items()}
    return {"all": {"hosts": hosts, "children": groups}}


def variables(inventory: Inventory, host: str) -> dict[str, Any]:
    """Return the resolved variables of a host, with the options that keep one connection to it open."""
    names = [name for name in inventory.names(host) if not name.startswith(LEFT_OUT)]
    resolved = {name: inventory.value(host, name) for name in sorted(names)}
    sockets = Path(resolved.get("ansible_control_path_dir", "~/.ansible/cp")).expanduser()
    sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    # `dasklab destroy` ends the connections in this folder. A socket's path must be short.
    socket = sockets / hashlib.sha1(f"testinfra {inventory.path} {host}".encode()).hexdigest()[:10]
    extra = resolved.get("ansible_ssh_extra_args", "")
    resolved["ansible_ssh_extra_args"] = f"{extra} -o ControlPath={socket}".strip()
    return resolved


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """With ``--hosts``, leave out the tests of a module on hosts that are not in its groups."""
    if not config.option.hosts:
        return
    kept, left_out = [], []
    for item in items:
        backend = item.callspec.params["_testinfra_host"].backend
        groups = {f"ansible://{group}" for group in backend.get_variables()["group_names"]}
        (kept if groups & set(item.module.testinfra_hosts) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.fixture(scope="session")
def inventory(pytestconfig: pytest.Config) -> Inventory:
    """The whole inventory, for checks of what runs on the controller."""
    return pytestconfig.stash[INVENTORY]


@pytest.fixture(scope="module")
def requested(host: Any) -> dict[str, Any]:
    """The inventory's variables of the host."""
    return dict(host.ansible.get_variables())


@pytest.fixture(scope="module")
def described(host: Any) -> dict[str, Any]:
    """The host's description of itself."""
    return dict(json.loads(host.check_output(f"{GUEST} host describe")))


@pytest.fixture(scope="module")
def is_container(requested: dict[str, Any]) -> bool:
    """Whether the lab made the host as a container, so that its kernel is the node's."""
    return dict(requested.get("guest", {})).get("kind") == "container"
