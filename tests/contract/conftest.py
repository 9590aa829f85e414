"""The endpoint under test: a fresh minipve of its own, or the real Proxmox VE that the environment names.

``PROXMOX_HOST``, ``PROXMOX_USER``, ``PROXMOX_TOKEN_ID``, ``PROXMOX_TOKEN_SECRET`` (and ``PROXMOX_CA_FILE``)
choose a real one; its node, bridge and pool are ``PROXMOX_NODE``, ``PROXMOX_BRIDGE``, ``PROXMOX_POOL``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.endpoint import Endpoint

INSTANCE = "contract"
ROOT = Path(__file__).parents[2]


def minipve(*words: str, state: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m lab.minipve`` on the instance in ``state``."""
    cache = str(state.with_name("cache"))  # without a guest's kernel in it: no probe of KVM takes its seconds
    environment = os.environ | {"DASKLAB_STATE": str(state), "DASKLAB_CACHE": cache, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lab.minipve", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def serve(state: Path, *options: str) -> Endpoint:
    """Start (or find) the endpoint in ``state``."""
    words = ("--instance", INSTANCE, "--unauthorized-delay", "0.05", *options)
    done = minipve("serve", "--detach", *words, state=state)
    assert done.returncode == 0, done.stderr
    return Endpoint.of_state(state, pool=INSTANCE)


@pytest.fixture(scope="session")
def real() -> bool:
    """Whether the endpoint is a real Proxmox VE."""
    return "PROXMOX_HOST" in os.environ


@pytest.fixture(scope="session")
def endpoint(real: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The endpoint that the whole session talks to."""
    if real:
        yield Endpoint.of_environment()
        return
    state = tmp_path_factory.mktemp("minipve")
    try:
        yield serve(state)
    finally:
        assert minipve("stop", "--purge", state=state).returncode == 0


@pytest.fixture
def own(real: bool, tmp_path: Path) -> Iterator[Endpoint]:
    """A minipve of the test's own, to be killed, restarted and looked into."""
    if real:
        pytest.skip("needs an endpoint of its own to break; the environment names a real Proxmox VE")
    try:
        yield serve(tmp_path)
    finally:
        assert minipve("stop", "--purge", state=tmp_path).returncode == 0


@pytest.fixture
def ours(real: bool, endpoint: Endpoint) -> Endpoint:
    """The session's endpoint for tests that need its root user or its files."""
    if real:
        pytest.skip("needs root@pam or the node's files; the environment names a real Proxmox VE")
    return endpoint


@pytest.fixture
def vmid(endpoint: Endpoint) -> Iterator[int]:
    """A free VMID; whatever stands there at the end is removed."""
    chosen = int(endpoint.api().cluster.nextid.get())
    yield chosen
    endpoint.remove(chosen)
