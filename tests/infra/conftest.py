"""Facts about the lab's hosts, for checks on provisioned hosts.

    pytest tests/infra --hosts=ansible://lab --ansible-inventory=inventory/hosts.yml --force-ansible

One Ansible command collects all facts once, on as many hosts in parallel as there are cores, because emulated
hosts are slow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import testinfra
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.topology import Guest
from dasklab.model.forms.strict import validate

os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # testinfra starts ansible by name
GUEST = "/opt/dasklab/bin/dasklab-guest"
UNITS = "dask-scheduler dask-worker dasklab-host"


def apply(**link: object) -> str:
    """Return the command that impairs the link for at most a minute."""
    return f"{GUEST} link apply '{json.dumps({'links': [link], 'ttl_s': 60})}' 2>&1"


JSON_COMMANDS = {
    "describe": f"{GUEST} host describe",
    "apply": f"{GUEST} host apply '{{\"check\": true}}'",
    "at_rest": f"{GUEST} link show",
    "impaired": apply(delay_ms=5, loss_pct=1),
    "shaped": apply(rate_mbit=100, direction="both"),
    "policed": apply(rate_mbit=100, policer=True),
    "cleared": f"{GUEST} link clear",
}
UNSUPPORTED = "unsupported: "  # begins the answer of a host whose kernel cannot do something
TEXT_COMMANDS = {
    "sshd": "sshd -T | grep -E '^(passwordauthentication|kbdinteractiveauthentication|permitrootlogin) '",
    "units": "systemctl show -p Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload,TimeoutStopUSec"
    f" {UNITS}",
    "timers": "systemctl list-timers --all --no-legend 'dask*'",
    "leftovers": "pgrep -a 'tcpdump|iperf3'; true",
}


@dataclass(frozen=True)
class Lab:
    """A host under test: its name, its inventory, and the output of the commands above.

    ``start_s`` and ``stop_s`` are the times before and after the commands, in seconds since 1970.
    """

    name: str
    inventory: Inventory
    answers: dict[str, Any]
    start_s: float
    stop_s: float

    def requested(self, variable: str) -> Any:
        """Return the inventory's value of a variable for this host; None if it has none."""
        return self.inventory.optional(self.name, variable)

    @property
    def guest(self) -> Guest | None:
        """The guest that the lab creates; None for a machine that exists already."""
        guest = self.requested("guest") if self.inventory.has(self.name, "guest") else None
        return guest and validate(Guest, guest, self.name)

    @property
    def is_container(self) -> bool:
        """Whether the host is a container, so that its kernel is the node's."""
        return self.guest is not None and self.guest.kind == "container"


def raw(host: Any, command: str) -> str:
    """Run a shell command without Python on the host, and return its output."""
    return printed(host.backend.run_ansible("ansible.builtin.raw", command, check=False))


def printed(result: dict[str, Any]) -> str:
    """Return the output of a successful shell command."""
    assert result.get("rc") == 0, result
    return str(result["stdout"]).replace("\r\n", "\n")


def parsed(body: str) -> Any:
    """Return the answer of the guest program."""
    return {"unsupported": body} if body.startswith(UNSUPPORTED) else json.loads(body)


@pytest.fixture(scope="session")
def inventory(request: pytest.FixtureRequest) -> Inventory:
    path = request.config.getoption("--ansible-inventory")
    if not path:
        pytest.skip(
            "needs a lab: --hosts=ansible://lab --ansible-inventory=inventory/hosts.yml --force-ansible"
        )
    return Inventory(Path(path))


@dataclass(frozen=True)
class Collected:
    """Ansible's result for each host, with the times before and after, and Ansible's errors."""

    start_s: float
    stop_s: float
    results: dict[str, dict[str, Any]]
    errors: str


@pytest.fixture(scope="session")
def collected(
    inventory: Inventory, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Collected:
    hosts = request.config.getoption("--hosts").split(",")
    tree = tmp_path_factory.mktemp("facts")
    script = "; ".join(f"echo @@{key}; {command}" for key, command in (JSON_COMMANDS | TEXT_COMMANDS).items())
    argv = ["ansible", ",".join(urlsplit(host).netloc for host in hosts), "-i", str(inventory.path)]
    argv += ["-m", "ansible.builtin.raw", "-a", script, "--tree", str(tree), "-f", str(os.cpu_count())]
    start_s = time.time()
    # Failures are in each host's result.
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    results = {path.name: json.loads(path.read_text()) for path in tree.iterdir()}
    return Collected(start_s, time.time(), results, process.stderr)


@pytest.fixture
def lab(host: Any, request: pytest.FixtureRequest) -> Lab:
    if host.backend.get_connection_type() != "ansible":
        pytest.skip("needs a lab: --hosts=ansible://lab")
    inventory, collected = (request.getfixturevalue(name) for name in ("inventory", "collected"))
    name = host.backend.host
    assert name in collected.results, collected.errors
    parts = dict(part.split("\n", 1) for part in printed(collected.results[name]).split("@@")[1:])
    answers = {key: parsed(body) if key in JSON_COMMANDS else body for key, body in parts.items()}
    return Lab(name, inventory, answers, collected.start_s, collected.stop_s)


@pytest.fixture
def node(lab: Lab, inventory: Inventory, request: pytest.FixtureRequest) -> Any:
    """The hypervisor. Its tests run once, with those of the client."""
    if lab.requested("dask_role") != "client":
        pytest.skip("runs once, with the client")
    nodes = inventory.hosts("hypervisors")
    if not nodes:
        pytest.skip("this lab has no hypervisor")
    path = request.config.getoption("--ansible-inventory")
    return testinfra.get_host(f"ansible://{nodes[0]}", ansible_inventory=path, force_ansible=True)
