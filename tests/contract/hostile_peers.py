"""Hostile clients and guests for the fuzz benchmark: silent connections, random agents."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from typing import Any

from tests.contract.endpoint import Endpoint
from tests.contract.fuzzing import ANSWER_S, Caller, Fuzzer
from tests.hostile_agent import ANSWERS, HostileAgent

AGENT_REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "info", {}),
    ("POST", "ping", {}),
    ("GET", "network-get-interfaces", {}),
    ("GET", "get-fsinfo", {}),
    ("POST", "exec", {"command": ["true"]}),
    ("GET", "exec-status", {"pid": 1}),
    ("GET", "file-read", {"file": "/x"}),
    ("POST", "file-write", {"file": "/x", "content": "y"}),
]
BEGINNINGS = (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n", b"\0")
VICTIM = 7310


@contextlib.contextmanager
def silent_clients(endpoint: Endpoint, count: int) -> Iterator[None]:
    """Open connections that stay silent, or stop in the middle of a request."""
    with contextlib.ExitStack() as links:
        for number in range(count):
            with contextlib.suppress(OSError):  # closed by the endpoint already
                link = socket.create_connection((endpoint.host, endpoint.port), timeout=20)
                links.enter_context(link).sendall(BEGINNINGS[number % len(BEGINNINGS)])
        yield


@contextlib.contextmanager
def hostile_guest(endpoint: Endpoint, chance: random.Random) -> Iterator[int]:
    """Yield the VMID of a running machine whose guest agent answers at random."""
    assert endpoint.state is not None
    root = endpoint.root()
    machines = root.nodes("pve").qemu
    endpoint.done(machines.post(vmid=VICTIM, memory=16, kvm=0, agent=1), root)
    endpoint.done(machines(VICTIM).status.start.post(), root)
    polite = chance.random() < 0.98  # it costs three seconds to find out that one is not
    agent = HostileAgent(endpoint.state / f"run/{VICTIM}.qga", lambda _: chance.choice(ANSWERS), polite)
    try:
        yield VICTIM
        # Whatever the agent answers, the task goes on; without a system, the machine ends by force.
        endpoint.done(machines(VICTIM).status.shutdown.post(timeout=1, forceStop=1), root)
    finally:
        agent.close()


def ask_agent(fuzzer: Fuzzer, caller: Caller, vmid: int, count: int) -> None:
    """Send requests to a machine's guest agent, and judge the answers."""
    for _ in range(count):
        verb, name, given = fuzzer.random.choice(AGENT_REQUESTS)
        path = f"/nodes/pve/qemu/{vmid}/agent/{name}"
        data, sample = fuzzer.encode(verb, path, given, caller)
        fuzzer.judge(caller, sample, fuzzer.exchange(data, ANSWER_S))
        fuzzer.sent += 1
