"""Ports of this machine that nobody uses."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
