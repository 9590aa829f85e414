"""A pytest fixture that runs a minipve endpoint for a test session.

To use it, write ``pytest_plugins = ["minipve.pytest_plugin"]`` in ``conftest.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from minipve.endpoint import setup


@dataclass(frozen=True)
class RunningEndpoint:
    """An endpoint for tests.

    Attributes:
        url: the base URL, without ``/api2/json``.
        host: an IP address of this machine.
        port: the TCP port.
        node: the name of the node.
        user: ``root@pam``.
        password: the password of ``user``.
        token_id: an API token of ``user`` without privilege separation.
        token_secret: the token's secret.
        ca_file: the certificate authority, for TLS verification.
        connect: a program for SSH's ProxyCommand: ``connect HOST PORT`` reaches a guest.
        environment: the variables that ``minipve env`` prints.
    """

    url: str
    host: str
    port: int
    node: str
    user: str
    password: str
    token_id: str
    token_secret: str
    ca_file: str
    connect: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def minipve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEndpoint]:
    """A new endpoint. Its guests and its state are removed at the end of the session."""
    state = tmp_path_factory.mktemp("minipve")
    try:
        _run(state, "serve", "--detach", "--unauthorized-delay", "0")
        yield _read(state)
    finally:
        _run(state, "stop", "--purge")


def _run(state: Path, *words: str) -> None:
    command = [sys.executable, "-m", "minipve", "--state", str(state), *words]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        pytest.fail(result.stderr.strip(), pytrace=False)


def _read(state: Path) -> RunningEndpoint:
    endpoint = json.loads((state / "endpoint.json").read_text())
    password = (state / "root-password").read_text().strip()
    names = ("url", "host", "port", "node", "user", "token_id", "token_secret", "ca_file", "connect")
    values = {name: endpoint[name] for name in names}
    return RunningEndpoint(**values, password=password, environment=setup.variables(endpoint, password))
