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
import yaml
from dasklab.machines.inventory import Inventory
from dasklab.machines.topology import Guest
from dasklab.model.strict import validate
from dasklab.paths import SHARE as ROOT

os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # testinfra starts ansible by name
BASE = yaml.safe_load((ROOT / "roles" / "base" / "defaults" / "main.yml").read_text())
BIN = f"{BASE['base_directory']}/bin"
UNITS = "dask-scheduler dask-worker dasklab-host"
JSON_COMMANDS = {
    "describe": f"{BIN}/dasklab_host.py describe",
    "apply": f"{BIN}/dasklab_host.py apply --check",
    "at_rest": f"{BIN}/dasklab_link.py show",
    "impaired": f'{BIN}/dasklab_link.py apply \'{{"delay_ms": 5, "loss_pct": 1}}\' --ttl 60',
    "shaped": f'{BIN}/dasklab_link.py apply \'{{"rate_mbit": 100, "direction": "both"}}\' --ttl 60',
    "policed": f'{BIN}/dasklab_link.py apply \'{{"rate_mbit": 100, "policer": true}}\' --ttl 60',
    "cleared": f"{BIN}/dasklab_link.py clear",
}
FORKED = "import sys; print('distributed' in sys.modules, open('/proc/self/cgroup').read().split())"
FORK = f"{BIN}/dasklab_forkserver.py /run/dasklab/infra.py >/run/dasklab/infra.out"
TEXT_COMMANDS = {
    "forked": "systemctl start dasklab-forkserver.socket; "
    f'cd /run/dasklab; rm -f infra.out; echo "{FORKED}" >infra.py; '
    f"systemd-run --quiet --collect --unit=dasklab-infra sh -c '{FORK}'; "
    "timeout 60 sh -c 'until test -s infra.out; do sleep 0.1; done'; cat infra.out",
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
    answers = {key: json.loads(body) if key in JSON_COMMANDS else body for key, body in parts.items()}
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
