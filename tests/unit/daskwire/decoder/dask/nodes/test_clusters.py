"""Roles and clusters are recognised by addresses and messages, never by names."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from daskwire import Capture, rows

from tests.unit.daskwire.build import ACK, HELLO, PSH, RST, Packet, Talk, g3

Read = Callable[..., Capture]
TABLES = [
    "messages",
    "ops",
    "tasks",
    "heartbeats",
    "matrix",
    "series",
    "composition",
    "gaps",
    "packets",
    "flows",
]
STEP = {"action": "compute", "start": 1.7e9, "stop": 1.7e9 + 1}
NEXT = {"action": "compute", "start": 1.7e9 + 3, "stop": 1.7e9 + 4}


class Cluster:
    """A scheduler, a worker and a client: two tasks finish, one fails, and the client is notified."""

    def __init__(self, network: str, port: int = 8786, name: Any = "w", listens: int = 3333) -> None:
        self.scheduler = (f"{network}.1", port)
        self.address = f"{network}.1:{port}"
        self.packets: list[Packet] = []
        self._number = 0
        self._isn = zlib.crc32(self.address.encode())
        stream = self.talk(f"{network}.2")
        own = f"tcp://{network}.2:{listens}"
        stream.say(0, g3({"op": "register-worker", "address": own, "name": name, "reply": False}))
        stream.say(1, g3({"status": "OK"}))
        self.tasks(stream)
        for _ in range(2):
            stream.say(0, g3({"op": "heartbeat_worker", "address": own}))
            stream.say(1, g3({"status": "OK", "heartbeat-interval": 0.5}))
        client = self.talk(f"{network}.9")
        client.say(0, g3({"op": "register-client", "client": f"Client-{self.address}", "reply": False}))
        client.say(1, g3([{"op": "task-erred", "key": "c"}, {"op": "key-in-memory", "key": "a"}]))
        self.packets += [*stream.packets, *client.packets]
        self.stream, self.client = stream, client

    def talk(self, address: str) -> Talk:
        self._number += 1
        isn = (self._isn + 1000 * self._number & 0xFFFFFFFF, self._isn * 7 & 0xFFFFFFFF)
        port = 30000 + self.scheduler[1] + self._number
        talk = Talk(client=(address, port), server=self.scheduler, isn=isn)
        return talk.open().say(0, g3(HELLO)).say(1, g3(HELLO))

    @staticmethod
    def tasks(stream: Talk) -> None:
        stream.say(1, g3([{"op": "compute-task", "key": key} for key in "abc"]))
        for key, step in (("a", STEP), ("b", NEXT)):
            stream.say(0, g3([{"op": "task-finished", "key": key, "thread": 7, "startstops": [step]}]))
        stream.say(0, g3([{"op": "task-erred", "key": "c", "thread": 7}]))


def merged(*clusters: Cluster) -> list[Packet]:
    return sorted((p for cluster in clusters for p in cluster.packets), key=lambda p: p[0])


def outcomes(capture: Capture) -> Counter[tuple[str, str]]:
    return Counter((row["cluster"], row["outcome"]) for row in rows(capture.table("tasks")))


def erred(capture: Capture) -> list[dict[str, Any]]:
    return [row for row in rows(capture.table("problems")) if row["problem"] == "erred tasks"]


@pytest.mark.parametrize("names", [
    {}, {"10.0.0.1": "boss"}, {"10.0.0.1:8786": "10.0.0.2"}, {"10.0.0.2": "scheduler"},
    {"10.0.0.9": "scheduler", "10.0.0.2": "scheduler", "10.0.0.1": "w"},
])  # fmt: skip
def test_user_names_do_not_create_tasks(read: Read, names: dict[str, str]) -> None:
    """A scheduler's notification of its clients is not a task, whatever the scheduler is called."""
    capture = read(Cluster("10.0.0").packets, names=names)
    assert outcomes(capture) == {("10.0.0.1:8786", "finished"): 2, ("10.0.0.1:8786", "erred"): 1}
    (problem,) = erred(capture)
    assert problem["number"] == 1 and problem["cluster"] == "10.0.0.1:8786"
    assert problem["destination"] == names.get("10.0.0.1", names.get("10.0.0.1:8786", "scheduler"))


@pytest.mark.parametrize("name", ["w", "scheduler", 0])
@pytest.mark.parametrize("names", [{}, {"10.0.0.2": "x", "10.7.0.2": "x"}])
def test_two_clusters_in_one_capture_are_separate(read: Read, name: Any, names: dict[str, str]) -> None:
    first, second = Cluster("10.0.0", name=name), Cluster("10.7.0", 9786, name=name)
    capture = read(merged(first, second), names=names)
    expected = {(c.address, o): n for c in (first, second) for o, n in (("finished", 2), ("erred", 1))}
    assert outcomes(capture) == expected
    assert sorted((row["cluster"], row["number"]) for row in erred(capture)) == [
        ("10.0.0.1:8786", 1), ("10.7.0.1:9786", 1),
    ]  # fmt: skip
    assert [row["gap_ms"] for row in rows(capture.table("gaps"))] == [2000.0, 2000.0]
    assert set(capture.scheduler_names) == {first.address, second.address}
    assert capture.table("heartbeats")["interval_ms"].count(None) == 2
    for table in TABLES:
        assert set(capture.table(table)["cluster"]) == {first.address, second.address}, table
    if not names:
        assert len(set(capture.table("tasks")["worker"])) == 2
        assert len(set(capture.table("matrix")["source"])) == 6


def test_second_scheduler_is_recognised(read: Read) -> None:
    """Also if it has fewer messages than the first."""
    first, second = Cluster("10.0.0"), Cluster("10.0.0", 9786)
    second.packets = second.client.packets
    capture = read(merged(first, second))
    assert outcomes(capture) == {(first.address, "finished"): 2, (first.address, "erred"): 1}


def test_generated_name_differs_from_chosen_names(read: Read) -> None:
    capture = read(merged(Cluster("10.0.0", name=0), Cluster("10.7.0", name="worker-1")))
    workers = dict(zip(capture.table("tasks")["cluster"], capture.table("tasks")["worker"], strict=True))
    assert workers == {"10.0.0.1:8786": "worker-2", "10.7.0.1:8786": "worker-1"}


def test_scheduler_is_recognised_mid_stream_by_its_ops(read: Read) -> None:
    cluster = Cluster("10.0.0")
    remaining = [p for talk in (cluster.stream, cluster.client) for p in talk.packets[13:]]
    capture = read(sorted(remaining, key=lambda p: p[0]))
    assert "register-worker" not in capture.messages.op_name
    assert outcomes(capture) == {("10.0.0.1:8786", "finished"): 2, ("10.0.0.1:8786", "erred"): 1}


@pytest.mark.parametrize("thread", [{"thread": 7}, {}])
def test_task_erred_with_a_thread_is_a_report(read: Read, thread: dict[str, int]) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, g3([{"op": "task-erred", "key": "a", **thread}]))
    capture = read(talk.packets)
    assert capture.table("tasks")["outcome"] == ["erred"] * len(thread)
    assert set(capture.table("tasks")["cluster"]) <= {""}


@pytest.mark.parametrize("how", ["client", "identity", "announced"])
def test_two_addresses_of_one_scheduler_are_one_cluster(read: Read, how: str) -> None:
    cluster = Cluster("10.0.0")
    inside, outside = cluster.scheduler, ("192.168.0.1", 8786)
    talk = Talk(client=("192.168.0.9", 50000), server=outside).open().say(0, g3(HELLO)).say(1, g3(HELLO))
    client = f"Client-{cluster.address}" if how == "client" else "other"
    talk.say(0, g3({"op": "register-client", "client": client, "reply": False}))
    identity = {"type": "Scheduler", "id": "Scheduler-1", "address": f"tcp://{outside[0]}:{outside[1]}"}
    if how == "announced":
        identity |= {"address": f"tcp://{inside[0]}:{inside[1]}"}
    ask = Talk(client=("192.168.0.9", 50001), server=outside, isn=(7000, 9000)).open()
    ask.say(0, g3(HELLO)).say(1, g3(HELLO))
    inner = Talk(client=("10.0.0.9", 50001), server=inside, isn=(70, 90)).open()
    inner.say(0, g3(HELLO)).say(1, g3(HELLO))
    if how != "client":
        ask.say(0, g3({"op": "identity"})).say(1, g3(identity))
    if how == "identity":
        inner.say(0, g3({"op": "identity"})).say(1, g3(identity))
    capture = read(cluster.packets + talk.packets + ask.packets + inner.packets)
    assert list(capture.scheduler_names.values()) == ["scheduler"]
    assert set(capture.table("matrix")["cluster"]) == {cluster.address}
    assert capture.nodes.name(*outside) == capture.nodes.name(*inside) == "scheduler"


def test_clusters_that_share_machines_are_separate(read: Read) -> None:
    """A connection between shared addresses belongs to neither cluster, unless a worker registered there."""
    first, second = Cluster("10.0.0"), Cluster("10.0.0", 9786, listens=4444)
    ssh = Talk(client=("10.0.0.9", 33000), server=("10.0.0.2", 22)).open()
    fetch = Talk(client=("10.0.0.9", 33001), server=("10.0.0.2", 4444)).open()
    capture = read(merged(first, second) + ssh.packets + fetch.packets)
    flows = {row["destination_port"]: row["cluster"] for row in rows(capture.table("flows"))}
    assert (flows[8786], flows[9786]) == (first.address, second.address)
    assert (flows[4444], flows[22]) == (second.address, "")


def test_connection_is_reset_once(read: Read) -> None:
    """Later RSTs, which answer segments in flight, do not count."""
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.add(1, RST | ACK)
    for _ in range(13):
        talk.add(0, ACK | PSH, b"x")
        talk.add(1, RST)
    talk.add(0, RST)
    capture = read(talk.packets)
    resets = [row for row in rows(capture.table("problems")) if row["problem"] == "mid-stream reset"]
    assert [(row["source"], row["number"]) for row in resets] == [("10.0.0.1", 1)]
    flows = capture.table("flows")
    assert sorted(flows["rst_packets"]) == [1, 14] and sorted(flows["resets"]) == [0, 1]
