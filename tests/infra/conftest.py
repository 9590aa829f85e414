"""What is true of the lab's hosts, asked once, as many at a time as there are cores: emulated, each is slow.

pytest tests/infra --hosts=ansible://lab --ansible-inventory=inventory/hosts.yml --force-ansible
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
QUESTIONS = {
    "describe": f"{BIN}/dasklab_host.py describe",
    "apply": f"{BIN}/dasklab_host.py apply --check",
    "at_rest": f"{BIN}/dasklab_link.py show",
    "impaired": f'{BIN}/dasklab_link.py apply \'{{"delay_ms": 5, "loss_pct": 1}}\' --ttl 60',
    "shaped": f'{BIN}/dasklab_link.py apply \'{{"rate_mbit": 100, "direction": "both"}}\' --ttl 60',
    "policed": f'{BIN}/dasklab_link.py apply \'{{"rate_mbit": 100, "policer": true}}\' --ttl 60',
    "cleared": f"{BIN}/dasklab_link.py clear",
}
FORKED = "import sys; print('distributed' in sys.modules, open('/proc/self/cgroup').read().split())"
ASKS = f"{BIN}/dasklab_forkserver.py /run/dasklab/infra.py >/run/dasklab/infra.said"
WORDS = {
    "forked": "systemctl start dasklab-forkserver.socket; "
    f'cd /run/dasklab; rm -f infra.said; echo "{FORKED}" >infra.py; '
    f"systemd-run --quiet --collect --unit=dasklab-infra sh -c '{ASKS}'; "
    "timeout 60 sh -c 'until test -s infra.said; do sleep 0.1; done'; cat infra.said",
    "sshd": "sshd -T | grep -E '^(passwordauthentication|kbdinteractiveauthentication|permitrootlogin) '",
    "units": "systemctl show -p Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload,TimeoutStopUSec"
    f" {UNITS}",
    "timers": "systemctl list-timers --all --no-legend 'dask*'",
    "leftovers": "pgrep -a 'tcpdump|iperf3'; true",
}


@dataclass(frozen=True)
class Lab:
    """A host under test: its name, the inventory's word on it, and its answers."""

    name: str
    inventory: Inventory
    answers: dict[str, Any]
    asked: float
    answered: float

    def wanted(self, variable: str) -> Any:
        """The inventory's value of a variable for this host; None if it has none."""
        return self.inventory.optional(self.name, variable)

    @property
    def guest(self) -> Guest | None:
        """What the lab makes; None of a machine that exists already."""
        wanted = self.wanted("guest") if self.inventory.has(self.name, "guest") else None
        return wanted and validate(Guest, wanted, self.name)

    @property
    def is_container(self) -> bool:
        """Whether its kernel is the node's."""
        return self.guest is not None and self.guest.kind == "container"


def raw(host: Any, command: str) -> str:
    """Run a shell command without Python on the host; its standard output."""
    return printed(host.backend.run_ansible("ansible.builtin.raw", command, check=False))


def printed(done: dict[str, Any]) -> str:
    """What a shell command printed that went well."""
    assert done.get("rc") == 0, done
    return str(done["stdout"]).replace("\r\n", "\n")


@pytest.fixture(scope="session")
def inventory(request: pytest.FixtureRequest) -> Inventory:
    path = request.config.getoption("--ansible-inventory")
    if not path:
        pytest.skip(
            "needs a lab: --hosts=ansible://lab --ansible-inventory=inventory/hosts.yml --force-ansible"
        )
    return Inventory(Path(path))


@dataclass(frozen=True)
class Told:
    """What Ansible has of each host, and when it was asked and had it from the last."""

    asked: float
    answered: float
    results: dict[str, dict[str, Any]]
    complaint: str


@pytest.fixture(scope="session")
def told(
    inventory: Inventory, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Told:
    asked_for = request.config.getoption("--hosts").split(",")
    tree = tmp_path_factory.mktemp("told")
    questions = "; ".join(f"echo @@{key}; {command}" for key, command in (QUESTIONS | WORDS).items())
    argv = ["ansible", ",".join(urlsplit(each).netloc for each in asked_for), "-i", str(inventory.path)]
    argv += ["-m", "ansible.builtin.raw", "-a", questions, "--tree", str(tree), "-f", str(os.cpu_count())]
    asked = time.time()
    # How it went is in each host's result.
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    results = {path.name: json.loads(path.read_text()) for path in tree.iterdir()}
    return Told(asked, time.time(), results, done.stderr)


@pytest.fixture
def lab(host: Any, request: pytest.FixtureRequest) -> Lab:
    if host.backend.get_connection_type() != "ansible":
        pytest.skip("needs a lab: --hosts=ansible://lab")
    inventory, told = (request.getfixturevalue(name) for name in ("inventory", "told"))
    name = host.backend.host
    assert name in told.results, told.complaint
    parts = dict(part.split("\n", 1) for part in printed(told.results[name]).split("@@")[1:])
    answers = {key: json.loads(body) if key in QUESTIONS else body for key, body in parts.items()}
    return Lab(name, inventory, answers, told.asked, told.answered)


@pytest.fixture
def node(lab: Lab, inventory: Inventory, request: pytest.FixtureRequest) -> Any:
    """The hypervisor, once: with the client's tests."""
    if lab.wanted("dask_role") != "client":
        pytest.skip("asked once, with the client")
    nodes = inventory.hosts("hypervisors")
    if not nodes:
        pytest.skip("this lab has no hypervisor")
    path = request.config.getoption("--ansible-inventory")
    return testinfra.get_host(f"ansible://{nodes[0]}", ansible_inventory=path, force_ansible=True)
