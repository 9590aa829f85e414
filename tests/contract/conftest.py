"""The endpoint under test: a fresh minipve of its own, or the real Proxmox VE that the environment names.

``PROXMOX_HOST``, ``PROXMOX_USER``, ``PROXMOX_TOKEN_ID``, ``PROXMOX_TOKEN_SECRET`` (and ``PROXMOX_CA_FILE``)
choose a real one, with the token that ``dasklab doctor`` asks for. Its node, bridge, storage and pool are
found, or are ``PROXMOX_NODE``, ``PROXMOX_BRIDGE``, ``PROXMOX_STORAGE``, ``PROXMOX_POOL``. What a node lacks
skips the tests that need it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.contract.endpoint import Endpoint
from tests.waiting import PATIENCE_S

pytest.register_assert_rewrite("tests.contract.recorded")
POOL = "contract"


def minipve(*words: str, state: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m minipve`` on the instance in ``state``."""
    cache = str(state.with_name("cache"))  # without a guest's kernel in it: no probe of KVM takes its seconds
    environment = os.environ | {"MINIPVE_STATE": str(state), "MINIPVE_CACHE": cache}
    command = [sys.executable, "-m", "minipve", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def serve(state: Path, *options: str) -> Endpoint:
    """Start (or find) the endpoint in ``state``."""
    done = minipve("serve", "--detach", "--unauthorized-delay", "0.05", *options, state=state)
    assert done.returncode == 0, done.stderr
    return Endpoint.of_state(state, pool=POOL)


@pytest.fixture(scope="session")
def real() -> bool:
    """Whether the endpoint is a real Proxmox VE."""
    return "PROXMOX_HOST" in os.environ


@pytest.fixture(scope="session")
def endpoint(real: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The endpoint that the whole session talks to."""
    if real:
        yield Endpoint.of_environment().completed()
        return
    state = tmp_path_factory.mktemp("minipve")
    try:
        yield serve(state)
    finally:
        assert minipve("stop", "--purge", state=state).returncode == 0


@pytest.fixture(scope="module")
def start(real: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Endpoint]]:
    """Starts a minipve of a module's own, with these options; at the module's end no process is left."""
    if real:
        pytest.skip("needs an endpoint of its own; the environment names a real Proxmox VE")
    state = tmp_path_factory.mktemp("fresh")
    try:
        yield partial(serve, state)
    finally:
        assert minipve("stop", "--purge", state=state).returncode == 0
    assert subprocess.run(["pgrep", "-f", state], capture_output=True).stdout == b""


@pytest.fixture(scope="module")
def own_for_all(start: Callable[..., Endpoint]) -> Endpoint:
    """A minipve of a module's own, which begins with nothing in it."""
    return start()


@pytest.fixture(scope="session")
def lxc(real: bool) -> None:
    """Skips, with the reason, where this machine cannot run containers."""
    from minipve.lxc import support

    if not real and (lacking := support.problem()):
        pytest.skip(lacking)


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
    """A free VMID, and the next five are free too; whatever stands there at the end is removed."""
    chosen = endpoint.free_vmids(6)
    yield chosen
    endpoint.remove(chosen)


@pytest.fixture(scope="session")
def disks(endpoint: Endpoint) -> str:
    """The storage for the VMs' disks."""
    return _store(endpoint, "images")


@pytest.fixture(scope="session")
def imports(endpoint: Endpoint) -> str:
    """The storage for uploaded images."""
    return _store(endpoint, "import")


def _store(endpoint: Endpoint, content: str) -> str:
    """A storage of files for ``content``, since the tests know the names of files and the format qcow2."""
    rows = endpoint.api().nodes(endpoint.node).storage.get(content=content)
    names = sorted(row["storage"] for row in rows if row["type"] in ("dir", "nfs", "cifs", "cephfs"))
    wanted = os.environ.get("PROXMOX_STORAGE", "local")
    if not names:
        pytest.skip(f"no storage of files keeps '{content}': pvesm set local --content images,import,iso")
    return wanted if wanted in names else names[0]


Allow = Callable[..., None]


@pytest.fixture
def allow(real: bool, endpoint: Endpoint) -> Iterator[Allow]:
    """Privileges beside those that the lab needs: given to its token here, expected on a real Proxmox VE."""
    given: list[str] = []

    def allow(*privileges: str, path: str = f"/pool/{endpoint.pool}") -> None:
        held = endpoint.api().access.permissions.get(path=path)[path]
        lacking = [privilege for privilege in privileges if privilege not in held]
        if lacking and real:
            pytest.skip(f"the token has no {', '.join(lacking)} on {path}")
        if lacking:
            given.append(f"Suite{len(given)}")
            endpoint.grant(path, given[-1], lacking)

    yield allow
    for role in given:
        endpoint.root().access.roles(role).delete()
