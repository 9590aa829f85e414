"""Node names: after a restart by the nanny, and if all nodes share one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from daskwire import Capture

from tests.unit.daskwire.build import HELLO, Packet, Talk, g3

Read = Callable[..., Capture]
SCHEDULER = 8786


class Cluster:
    """Connections opened one after the other; all nodes on one address, or each on its own."""

    def __init__(self, one_address: bool = True) -> None:
        self.one_address = one_address
        self.port = 40000
        self.packets: list[Packet] = []
        self.time_ns = 1_700_000_000 * 10**9

    def host(self, number: int) -> str:
        return "127.0.0.1" if self.one_address else f"10.0.0.{number}"

    def talk(self, host: int, to: tuple[int, int], *said: Any, answer: Any = "OK") -> int:
        """Send messages on a new connection to (host, port); return the client port."""
        self.port += 1
        ends = {"client": (self.host(host), self.port), "server": (self.host(to[0]), to[1])}
        talk = Talk(**ends, time_ns=self.time_ns).open().say(0, g3(HELLO)).say(1, g3(HELLO))
        for message in said:
            talk.say(0, g3(message)).say(1, g3(answer))
        self.packets += talk.packets
        self.time_ns = talk.time_ns
        return self.port

    def worker(self, host: int, port: int, name: Any, nanny: int, scheduler: int = SCHEDULER) -> int:
        address = f"tcp://{self.host(host)}:{port}"
        said = {"op": "register-worker", "address": address, "nanny": f"tcp://{self.host(host)}:{nanny}"}
        return self.talk(host, (1, scheduler), {**said, "name": address if name is None else name})


def name(capture: Capture, address: str, port: int) -> str:
    return capture.nodes.name(address, port)


@pytest.mark.parametrize("one_address", [True, False])
@pytest.mark.parametrize(("own", "expected"), [("w1", "w1"), (None, "worker-1"), (0, "worker-1")])
def test_restarted_worker_is_the_same_node(read: Read, one_address: bool, own: Any, expected: str) -> None:
    cluster = Cluster(one_address)
    ports = [cluster.worker(2, port, own, nanny=3000) for port in (3333, 3444, 3555)]
    other = cluster.worker(3, 5333, "other", nanny=5000)
    capture = read(cluster.packets)
    assert {name(capture, cluster.host(2), port) for port in [*ports, 3333, 3444, 3555]} == {expected}
    assert name(capture, cluster.host(3), other) == name(capture, cluster.host(3), 5333) == "other"


def test_same_name_in_two_clusters_is_two_nodes(read: Read) -> None:
    cluster = Cluster()
    first, second = cluster.worker(2, 3333, "w", 3000), cluster.worker(2, 4444, "w", 4000, scheduler=9786)
    capture = read(cluster.packets)
    assert {name(capture, "127.0.0.1", port) for port in (first, second)} == {"worker-1", "worker-2"}


def test_all_endpoints_on_one_address_are_named(read: Read) -> None:
    """By registration, by ``who`` in get_data, by nanny, and by ops of clients and schedulers."""
    cluster = Cluster()
    expected = {
        cluster.talk(1, (1, SCHEDULER), {"op": "register_nanny", "address": "tcp://127.0.0.1:3000"}): "w1",
        cluster.worker(1, 3333, "w1", nanny=3000): "w1",
        cluster.worker(1, 4444, "w2", nanny=4000): "w2",
        cluster.talk(1, (1, SCHEDULER), {"op": "register-client", "client": "c"}): "client",
        cluster.talk(1, (1, SCHEDULER), {"op": "identity"}, {"op": "gather", "keys": ["x"]}): "client",
        cluster.talk(1, (1, SCHEDULER), {"op": "who_has"}, {"op": "versions"}): "client",
        cluster.talk(1, (1, 3333), {"op": "get_data", "keys": ["x"], "who": None}): "scheduler",
        cluster.talk(1, (1, 4444), {"op": "versions", "close": False}): "scheduler",
        cluster.talk(1, (1, 4444), {"op": "get_data", "keys": ["y"], "who": "tcp://127.0.0.1:3333"}): "w1",
        cluster.talk(1, (1, SCHEDULER), {"op": "unregister", "address": "tcp://127.0.0.1:4444"}): "w2",
    }
    capture = read(cluster.packets)
    assert {port: name(capture, "127.0.0.1", port) for port in expected} == expected
    assert "127.0.0.1" not in capture.table("composition")["source"]


def test_ambiguous_endpoint_is_not_named(read: Read) -> None:
    cluster = Cluster()
    cluster.worker(1, 3333, "w1", nanny=3000)
    for client in ("a", "b"):
        cluster.talk(1, (1, SCHEDULER), {"op": "register-client", "client": client})
    unknown = [
        cluster.talk(1, (1, SCHEDULER), {"op": "identity"}),  # any node may send it
        cluster.talk(1, (1, 3333), {"op": "get_data", "keys": ["x"], "who": None}),  # no client requested x
    ]
    capture = read(cluster.packets)
    assert {name(capture, "127.0.0.1", port) for port in unknown} == {"127.0.0.1"}
