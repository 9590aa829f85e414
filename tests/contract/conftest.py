"""The endpoint under test: a new minipve, or the real Proxmox VE that the environment names.

``PROXMOX_HOST``, ``PROXMOX_USER``, ``PROXMOX_TOKEN_ID``, ``PROXMOX_TOKEN_SECRET`` (and ``PROXMOX_CA_FILE``)
select a real one, with the token that ``dasklab doctor`` describes. Node, bridge, storage and pool are
discovered, or set by ``PROXMOX_NODE``, ``PROXMOX_BRIDGE``, ``PROXMOX_STORAGE``, ``PROXMOX_POOL``. Tests that
need something which the node lacks are skipped.
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
    cache = str(state.with_name("cache"))  # has no guest kernel, so KVM is not probed, which takes seconds
    environment = os.environ | {"MINIPVE_STATE": str(state), "MINIPVE_CACHE": cache}
    command = [sys.executable, "-m", "minipve", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def serve(state: Path, *options: str) -> Endpoint:
    """Start the endpoint in ``state`` unless it is running."""
    process = minipve("serve", "--detach", "--unauthorized-delay", "0.05", *options, state=state)
    assert process.returncode == 0, process.stderr
    return Endpoint.of_state(state, pool=POOL)


@pytest.fixture(scope="session")
def real() -> bool:
    """Whether the endpoint is a real Proxmox VE."""
    return "PROXMOX_HOST" in os.environ


@pytest.fixture(scope="session")
def endpoint(real: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The endpoint of the whole session."""
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
    """A function that starts a minipve for one module, with options. It is stopped at the module's end."""
    if real:
        pytest.skip("needs its own endpoint, but the environment names a real Proxmox VE")
    state = tmp_path_factory.mktemp("fresh")
    try:
        yield partial(serve, state)
    finally:
        assert minipve("stop", "--purge", state=state).returncode == 0
    assert subprocess.run(["pgrep", "-f", state], capture_output=True).stdout == b""


@pytest.fixture(scope="module")
def own_for_all(start: Callable[..., Endpoint]) -> Endpoint:
    """A new minipve for one module."""
    return start()


@pytest.fixture(scope="session")
def lxc(real: bool) -> None:
    """Skip if this machine cannot run containers, with the reason."""
    from minipve.guests.lxc import limits

    if not real and (lacking := limits.problem()):
        pytest.skip(lacking)


@pytest.fixture
def own(real: bool, tmp_path: Path) -> Iterator[Endpoint]:
    """A new minipve for one test, which may kill and restart it."""
    if real:
        pytest.skip("needs an endpoint to break, but the environment names a real Proxmox VE")
    try:
        yield serve(tmp_path)
    finally:
        assert minipve("stop", "--purge", state=tmp_path).returncode == 0


@pytest.fixture
def ours(real: bool, endpoint: Endpoint) -> Endpoint:
    """The session's endpoint, for tests that need its root user or its files."""
    if real:
        pytest.skip("needs root@pam or the node's files, but the environment names a real Proxmox VE")
    return endpoint


@pytest.fixture
def vmid(endpoint: Endpoint) -> Iterator[int]:
    """A free VMID; the next five are free, too. Guests on them are removed at the end."""
    chosen = endpoint.free_vmids(6)
    yield chosen
    endpoint.remove(chosen)


@pytest.fixture(scope="session")
def disks(endpoint: Endpoint) -> str:
    """The storage for disks."""
    return _store(endpoint, "images")


@pytest.fixture(scope="session")
def imports(endpoint: Endpoint) -> str:
    """The storage for uploaded images."""
    return _store(endpoint, "import")


def _store(endpoint: Endpoint, content: str) -> str:
    """Return a storage that keeps files, because the tests expect file names and the format qcow2."""
    rows = endpoint.api().nodes(endpoint.node).storage.get(content=content)
    names = sorted(row["storage"] for row in rows if row["type"] in ("dir", "nfs", "cifs", "cephfs"))
    preferred = os.environ.get("PROXMOX_STORAGE", "local")
    if not names:
        pytest.skip(f"no file storage allows '{content}': pvesm set local --content images,import,iso")
    return preferred if preferred in names else names[0]


Allow = Callable[..., None]


@pytest.fixture
def allow(real: bool, endpoint: Endpoint) -> Iterator[Allow]:
    """A function that adds privileges to the lab's token; a real Proxmox VE must have granted them."""
    roles: list[str] = []

    def allow(*privileges: str, path: str = f"/pool/{endpoint.pool}") -> None:
        granted = endpoint.api().access.permissions.get(path=path)[path]
        lacking = [privilege for privilege in privileges if privilege not in granted]
        if lacking and real:
            pytest.skip(f"the token has no {', '.join(lacking)} on {path}")
        if lacking:
            roles.append(f"Suite{len(roles)}")
            endpoint.grant(path, roles[-1], lacking)

    yield allow
    for role in roles:
        endpoint.root().access.roles(role).delete()
