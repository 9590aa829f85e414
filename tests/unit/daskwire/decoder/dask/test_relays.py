"""Connections that a TCP relay passes on count once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from daskwire import Capture

from tests.unit.daskwire.build import GOLDEN, HELLO, Packet, Talk, g3
from tests.unit.daskwire.conftest import golden_capture

Read = Callable[..., Capture]
DELAY_NS = 300_000
ANNOUNCED = {"op": "register-worker", "reply": False, "address": "tcp://10.0.0.2:3333", "name": "w1"}


def talk(client: tuple[str, int], server: tuple[str, int], isn: int, begin_ns: int = 0) -> Talk:
    """Build a worker's conversation; each message takes its time to the relay and back."""
    one = Talk(client=client, server=server, isn=(isn, 2 * isn), step_ns=1_000_000)
    one.time_ns += begin_ns
    one.open().say(0, g3(HELLO)).say(1, g3(HELLO)).say(0, g3(ANNOUNCED)).say(
        1, g3({"status": "OK", "time": 1})
    )
    for number in range(3):
        one.say(1, g3([{"op": "compute-task", "key": f"task-{number}"}]))
        one.say(0, g3([{"op": "task-finished", "key": f"task-{number}", "thread": 1}]))
    return one


def relayed(listener: str, address: str) -> list[Packet]:
    """A worker connects to a relay's listener; the relay connects to the scheduler from its address."""
    outer = talk(("10.0.0.2", 40000), (listener, 9999), 1000)
    inner = talk((address, 50000), ("10.0.0.1", 8786), 700_000)
    source = bytes(map(int, address.split(".")))
    inner_packets = [
        (time_ns + (DELAY_NS if data[26:30] == source else -DELAY_NS), data, size)
        for time_ns, data, size in inner.packets
    ]
    return sorted([*outer.packets, *inner_packets], key=lambda packet: packet[0])


@pytest.mark.parametrize(("listener", "address"), [("10.0.0.9", "10.0.0.9"), ("127.0.0.1", "10.0.0.9")])
def test_relayed_worker_is_one_worker(read: Read, listener: str, address: str) -> None:
    capture = read(relayed(listener, address))
    assert len(capture.relays) == 1
    assert capture.table("tasks")["key"] == ["task-0", "task-1", "task-2"]
    assert set(capture.table("ops")["source"]) == {"w1", "scheduler"}
    assert list(capture.scheduler_names) == ["10.0.0.1:8786"]
    assert "relay" in capture.table("matrix")["source"]
    assert capture.table("problems")["problem"] == []


def test_nodes_on_one_host_that_get_the_same_messages_are_not_relays(read: Read) -> None:
    first = talk(("10.0.0.1", 40000), ("10.0.0.1", 9999), 1000)
    second = talk(("10.0.0.1", 40001), ("10.0.0.1", 9998), 700_000, DELAY_NS)
    packets = sorted([*first.packets, *second.packets], key=lambda packet: packet[0])
    assert read(packets).relays == []


def test_nodes_that_send_the_same_messages_are_not_relays(read: Read) -> None:
    first = talk(("10.0.0.2", 40000), ("10.0.0.1", 8786), 1000)
    second = talk(("10.0.0.3", 40000), ("10.0.0.1", 8786), 700_000, DELAY_NS)
    packets = sorted([*first.packets, *second.packets], key=lambda packet: packet[0])
    assert read(packets).relays == []


@pytest.mark.parametrize("name", GOLDEN)
def test_cluster_without_a_relay(name: str) -> None:
    assert golden_capture(name).relays == []
