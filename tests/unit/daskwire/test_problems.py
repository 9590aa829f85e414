"""Each kind of problem is reported with its place, time and cost, and a healthy capture has none."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daskwire import Capture, rows
from daskwire.problems.finding import Finding, display_filter, notes_if_cheap, ranked
from daskwire.problems.kinds import KINDS
from daskwire.terminal.cli import wire

from tests import wire_reference
from tests.unit.daskwire.build import (
    ACK,
    DATA,
    FIN,
    GOLDEN,
    HELLO,
    PSH,
    RST,
    SYN,
    Packet,
    Talk,
    g3,
    golden_bytes,
    packets_of,
    pcap,
    stamp,
)
from tests.unit.daskwire.conftest import golden_capture

Read = Callable[..., Capture]
SECOND_NS = 1_000_000_000
PACKETS = packets_of(golden_bytes("g3-2026.8.0"))
GOLDEN_PATH = str(DATA / "g3-2026.8.0.pcap.gz")
WORKERS = {"w1": "10.0.0.2", "w2": "10.0.0.3", "w3": "10.0.0.4"}


def findings(capture: Capture, severity: str = "problem") -> list[dict[str, Any]]:
    return [row for row in rows(capture.table("problems")) if row["severity"] == severity]


def only(capture: Capture, problem: str, severity: str = "problem") -> dict[str, Any]:
    (row,) = [row for row in findings(capture, severity) if row["problem"] == problem]
    return row


class Cluster:
    """A scheduler and three workers that compute for ten seconds; connections are built separately."""

    def __init__(self) -> None:
        self.talks: list[Talk] = []
        self.streams = {name: self.open(address, 40000) for name, address in WORKERS.items()}
        for name, talk in self.streams.items():
            own = {"address": f"tcp://{WORKERS[name]}:3333", "name": name}
            talk.say(0, g3({"op": "register-worker", "reply": False, **own}))
            talk.say(1, g3({"status": "OK"}))
            talk.say(1, g3([{"op": "compute-task", "key": f"{name}-first"}]))
            talk.say(0, g3([{"op": "task-finished", "key": f"{name}-first", "thread": 1}]))
        self.client = self.open("10.0.0.9", 40000).say(0, g3({"op": "register-client", "client": "Client-1"}))
        self.client.time_ns = max(talk.time_ns for talk in self.talks)
        self.complete()
        self.begin_ns = self.client.time_ns

    def complete(self) -> None:
        """Tell the client that its first computation is complete."""
        self.client.say(1, g3([{"op": "key-in-memory", "key": "w1-first", "type": "int"}]))

    def open(
        self, address: str, port: int, server: tuple[str, int] = ("10.0.0.1", 8786), **options: Any
    ) -> Talk:
        number = len(self.talks)
        isn = (number * 1_000_003 + 17, number * 900_007 + 5)
        talk = Talk(client=(address, port), server=server, isn=isn, **options)
        self.talks.append(talk)
        return talk.open().say(0, g3(HELLO)).say(1, g3(HELLO))

    def fetch(self, source: str, destination: str, at_s: float, **options: Any) -> Talk:
        """Open a connection between workers and ask for data."""
        port = 41000 + len(self.talks)
        server = (WORKERS[source], 3333)
        talk = self.open(WORKERS[destination], port, server, time_ns=self.at(at_s), **options)
        who = f"tcp://{WORKERS[destination]}:3333"
        return talk.say(0, g3({"op": "get_data", "keys": ["x"], "who": who}))

    def at(self, seconds: float) -> int:
        return self.begin_ns + round(seconds * SECOND_NS)

    def beat(self, name: str, at_s: float, answer_s: float = 0.001, announced: float = 0.5) -> None:
        talk = self.streams[name]
        talk.time_ns = self.at(at_s)
        talk.say(0, g3({"op": "heartbeat_worker", "address": f"tcp://{WORKERS[name]}:3333", "name": name}))
        talk.time_ns = self.at(at_s + answer_s)
        talk.say(1, g3({"status": "OK", "heartbeat-interval": announced}))

    def work(self, until_s: float = 10.0, without: str = "") -> None:
        """Let all workers but one send a heartbeat each half second."""
        for step in range(int(until_s * 2)):
            for name in WORKERS:
                if name != without:
                    self.beat(name, step / 2)

    @property
    def packets(self) -> list[Packet]:
        return sorted((p for talk in self.talks for p in talk.packets), key=lambda p: p[0])


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith(("tls", "ws"))])
def test_healthy_capture_has_no_problem(name: str) -> None:
    assert findings(golden_capture(name)) == []


def test_websockets_wait_for_delayed_acks() -> None:
    """Tornado switches TCP_NODELAY off after an upgrade, and Dask's connector leaves it so."""
    rows = findings(golden_capture("ws-2026.8.0"))
    assert {(row["problem"], row["source"]) for row in rows} == {
        ("delayed ACKs", "worker-1"),
        ("delayed ACKs", "worker-2"),
    }


def test_healthy_cluster_has_no_problem(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    cluster.fetch("w1", "w2", 1.0).say(1, g3({"status": "OK"}, bytes(3_000_000)), mtu=60_000)
    assert findings(read(cluster.packets)) == []


def test_no_problem_is_an_answer() -> None:
    result = CliRunner().invoke(wire, ["problems", GOLDEN_PATH])
    assert result.exit_code == 0 and result.stdout == "no problem found\n"
    assert json.loads(CliRunner().invoke(wire, ["problems", GOLDEN_PATH, "--json"]).stdout)["rows"] == []


def test_output_has_place_time_cost_and_filter(read: Read, tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    for at_s in (0.0, 0.5, 4.5, 5.0):
        cluster.beat("w2", at_s)
    read(cluster.packets)
    output = CliRunner().invoke(wire, ["problems", str(tmp_path / "capture.pcap")]).stdout
    assert output.startswith(
        "1. blocked worker loop: w2\n   sent no message for 4.0 s, though heartbeats were due\n"
    )
    assert re.search(
        r"\n   from \d\.\d+ to \d\.\d+ s \(4\.0 s\), cost 4\.0 s of waiting, certainty 90 %\n", output
    )
    assert "\n   filter: (ip.addr == 10.0.0.1 && ip.addr == 10.0.0.3) && (tcp.port == " in output
    assert KINDS["blocked worker loop"].advice in output


def test_silent_worker_is_blocked_and_a_talking_one_is_late(read: Read) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    for at_s in (0.0, 3.0, 6.0, 9.0):
        cluster.beat("w2", at_s)
        for extra in (0.6, 1.2, 1.8, 2.4):
            cluster.streams["w2"].time_ns = cluster.at(at_s + extra)
            cluster.streams["w2"].say(0, g3([{"op": "add-keys", "keys": ["x"]}]))
    late = only(read(cluster.packets), "late heartbeats")
    assert (late["source"], late["number"]) == ("w2", 4) and "up to 3,000 ms" in late["what"]


def test_a_heartbeat_that_never_comes_is_late(read: Read) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    cluster.beat("w2", 0.0)
    for second in range(1, 9):
        cluster.streams["w2"].time_ns = cluster.at(second)
        cluster.streams["w2"].say(0, g3([{"op": "add-keys", "keys": ["x"]}]))
    late = only(read(cluster.packets), "late heartbeats")
    assert (late["source"], late["number"]) == ("w2", 1) and "up to 8,0" in late["what"]


def test_pause_of_all_workers_is_not_a_problem(read: Read) -> None:
    cluster = Cluster()
    for name in WORKERS:
        for at_s in (0.0, 0.5, 4.5, 5.0):
            cluster.beat(name, at_s)
    assert findings(read(cluster.packets)) == []


def test_pause_before_the_first_result_is_start_up(read: Read) -> None:
    cluster = Cluster()
    talk = cluster.streams["w2"]
    talk.packets = [p for p in talk.packets if b"task-finished" not in p[1]]
    cluster.work(without="w2")
    for at_s in (0.0, 4.5, 5.0):
        cluster.beat("w2", at_s)
    talk.say(0, g3([{"op": "task-finished", "key": "w2-first", "thread": 1}]))
    assert findings(read(cluster.packets)) == []


def test_pause_before_the_first_computation_is_complete_is_start_up(read: Read) -> None:
    cluster = Cluster()
    cluster.client.packets = [p for p in cluster.client.packets if b"key-in-memory" not in p[1]]
    cluster.client.sent[1] = len(g3(HELLO))
    cluster.work(without="w2")
    for at_s in (0.0, 4.5, 5.0):
        cluster.beat("w2", at_s)
    cluster.client.time_ns = cluster.at(6.0)
    cluster.complete()
    assert findings(read(cluster.packets)) == []


def test_scheduler_that_answers_late(read: Read) -> None:
    cluster = Cluster()
    cluster.work(4.0)
    for name in WORKERS:
        cluster.beat(name, 5.0, answer_s=1.4)
    row = only(read(cluster.packets), "slow scheduler loop")
    assert (row["source"], row["number"]) == ("scheduler", 3) and row["cost_s"] == pytest.approx(
        1.4, abs=0.01
    )


def connect(cluster: Cluster, port: int, at_s: float, answer: int = 0, attempts: int = 1) -> None:
    """Try to connect from w1 to w2: with an RST, or without an answer."""
    talk = Talk(client=("10.0.0.2", port), server=("10.0.0.3", 9999), time_ns=cluster.at(at_s))
    for _ in range(attempts):
        talk.add(0, SYN, seq=7)
        talk.time_ns += SECOND_NS
    if answer:
        talk.time_ns -= SECOND_NS
        talk.add(1, answer, seq=0)
    cluster.talks.append(talk)


def test_refused_and_unanswered_connects(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for number in range(3):
        connect(cluster, 42000 + number, 2.0 + number, RST | ACK)
    connect(cluster, 43000, 3.0, attempts=4)
    capture = read(cluster.packets)
    refused, silent = only(capture, "refused connects"), only(capture, "unanswered connects")
    assert refused["what"] == "connecting to 10.0.0.3 port 9999 was refused: 3 connections, 3 SYNs"
    assert refused["cost_s"] == pytest.approx(7.5, abs=0.2)  # until the end
    assert silent["what"].endswith("had no answer: 1 connection, 4 SYNs") and silent["source"] == "w1"


def test_a_connect_that_only_a_later_syn_achieves(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    connect(cluster, 43000, 3.0, SYN | ACK, attempts=3)
    row = only(read(cluster.packets), "unanswered connects")
    assert row["what"].endswith("had no answer for 2.0 s: 1 connection, 3 SYNs")
    assert row["cost_s"] == pytest.approx(2.0, abs=0.1)


def test_connect_refused_at_start_up_is_a_note(read: Read) -> None:
    cluster = Cluster()
    early = Talk(client=("10.0.0.2", 39999), time_ns=cluster.streams["w1"].packets[0][0] - 5 * SECOND_NS)
    early.add(0, SYN, seq=7)
    early.add(1, RST | ACK, seq=0)
    cluster.talks.append(early)
    cluster.work()
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "refused connects", "note")["number"] == 1


def test_slow_handshake_is_a_slow_connect(read: Read) -> None:
    cluster = Cluster()
    talk = Talk(client=("10.0.0.9", 50000), isn=(77, 88), time_ns=cluster.at(1)).open().say(0, g3(HELLO))
    talk.time_ns += 3 * SECOND_NS
    talk.say(1, g3(HELLO))
    cluster.talks.append(talk)
    cluster.work()
    row = only(read(cluster.packets), "slow connects")
    assert row["source"] == "scheduler" and row["cost_s"] == pytest.approx(3.0, abs=0.01)


def test_reset_with_an_outstanding_request(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    talk.time_ns += 2 * SECOND_NS
    talk.add(1, RST | ACK)
    row = only(read(cluster.packets), "mid-stream reset")
    assert (row["source"], row["destination"], row["number"]) == ("w1", "w2", 1)
    assert row["cost_s"] == pytest.approx(2.0, abs=0.01)


def test_reset_of_a_worker_with_tasks(read: Read) -> None:
    """The reports of its tasks are outstanding; without tasks, it left."""
    for number, severity in ((0, "note"), (2, "problem")):
        cluster = Cluster()
        cluster.work(without="w2")
        talk = cluster.streams["w2"]
        talk.time_ns = cluster.at(3)
        for key in range(number):
            talk.say(1, g3([{"op": "compute-task", "key": f"task-{key}"}]))
        talk.time_ns = cluster.at(4)
        talk.add(1, RST | ACK)
        row = only(read(cluster.packets), "mid-stream reset", severity)
        assert (row["source"], row["destination"]) == ("scheduler", "w2")
        assert row["cost_s"] == pytest.approx(1.0 if number else 0.0, abs=0.01)


def test_reset_of_an_idle_connection_is_a_note(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    cluster.fetch("w1", "w2", 2.0).say(1, g3({"status": "OK"})).say(0, g3("OK")).add(0, RST | ACK)
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "mid-stream reset", "note")["source"] == "w2"


@pytest.mark.parametrize("before", ["", "close-stream", "reset"])
def test_a_worker_that_vanishes_is_lost(read: Read, before: str) -> None:
    """The kernel closes the connections of a process that was killed; one that closes says so.

    A worker whose connection the other host resets closes as well, but is not lost.
    """
    cluster = Cluster()
    cluster.work(without="w2")
    talk = cluster.streams["w2"]
    talk.time_ns = cluster.at(4)
    if before == "close-stream":
        talk.say(0, g3([{"op": "close-stream"}]))
    elif before:
        talk.add(1, RST | ACK)
    talk.add(0, FIN | ACK)
    capture = read(cluster.packets)
    if before:
        assert findings(capture) == []
    else:
        row = only(capture, "lost worker")
        assert (row["source"], row["destination"], row["cost_s"]) == ("w2", "scheduler", 0.0)


def test_zero_window_costs_its_duration(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    data = g3({"status": "OK"}, bytes(500_000))
    talk.say(1, data[:200_000], mtu=50_000)
    talk.add(0, ACK, window=0)
    talk.time_ns += int(1.5 * SECOND_NS)
    talk.add(0, ACK, window=500)
    talk.say(1, data[200_000:], mtu=50_000)
    row = only(read(cluster.packets), "zero window")
    assert (row["source"], row["destination"]) == ("w2", "w1")
    assert row["cost_s"] == pytest.approx(1.5, abs=0.01) and "waiting: w1" in row["what"]


def retransmitted(talk: Talk, who: int, part: bytes, gaps_s: tuple[float, ...]) -> None:
    """Send a segment, and again after each gap."""
    begin = talk.isn[who] + 1 + talk.sent[who]
    talk.add(who, ACK | PSH, part, seq=begin)
    for gap_s in gaps_s:
        talk.time_ns += round(gap_s * SECOND_NS)
        talk.add(who, ACK | PSH, part, seq=begin)


def test_mtu_black_hole(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    retransmitted(cluster.fetch("w1", "w2", 1.0), 1, bytes(1448), (0.2, 0.4, 0.8, 1.6))
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("MTU black hole", "w1", "w2")
    assert "segments of 1,448 bytes were retransmitted 4 times" in row["what"]
    assert row["cost_s"] == pytest.approx(3.0, abs=0.01) and "tcp.len >= 400" in row["filter"]


def test_mtu_black_hole_that_begins_later(read: Read) -> None:
    """Large segments arrived before, small ones still do."""
    cluster = Cluster()
    cluster.work()
    transfer(cluster.fetch("w1", "w2", 1.0), 100_000)
    retransmitted(cluster.fetch("w1", "w2", 2.0), 1, bytes(1448), (0.2, 0.4, 0.8, 1.6))
    cluster.fetch("w1", "w2", 4.0).say(1, g3({"status": "busy"}))
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("MTU black hole", "w1", "w2")


def test_half_open_connection(read: Read) -> None:
    """The peer's host sends nothing any more."""
    cluster = Cluster()
    cluster.work(without="w2")
    cluster.beat("w2", 0.0)
    talk = cluster.streams["w2"]
    talk.time_ns = cluster.at(1)
    retransmitted(talk, 1, g3([{"op": "compute-task", "key": "x"}]), (0.2, 0.4, 0.8, 1.6, 3.2))
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"]) == ("half-open connection", "w2")
    assert row["cost_s"] == pytest.approx(6.2, abs=0.01)


def test_outage_is_a_retransmission_time_out(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for name in ("w1", "w3"):
        talk = cluster.fetch(name, "w2", 2.0)
        reply = g3({"status": "OK"})
        retransmitted(talk, 1, reply, (0.2, 0.4, 0.8))
        talk.sent[1] += len(reply)
        talk.add(0, ACK)
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"]) == ("retransmission time-outs", "w2")
    assert "no packet passed for 1.4 s (1 episode, 6 time-outs on 2 connections)" in row["what"]


@pytest.mark.parametrize(("first", "kind"), [("reset", "mid-stream reset"), ("outage", "")])
def test_time_outs_after_a_reset_are_its_consequence(read: Read, first: str, kind: str) -> None:
    """An outage that begins before the reset is not."""
    cluster = Cluster()
    cluster.work()
    reset = cluster.fetch("w1", "w2", 2.0 if first == "reset" else 3.0)
    reset.time_ns += SECOND_NS // 100
    reset.add(1, RST | ACK)
    talk = cluster.fetch("w1", "w2", 2.0)
    reply = g3({"status": "OK"})
    retransmitted(talk, 1, reply, (0.2, 0.4, 0.8))
    talk.sent[1] += len(reply)
    talk.add(0, ACK)
    problems = [row["problem"] for row in findings(read(cluster.packets))]
    assert problems == [kind] if kind else "retransmission time-outs" in problems


def test_queues_of_several_pairs_cost_their_sum() -> None:
    def finding(cost_s: float) -> Finding:
        return Finding("bufferbloat", "", cost_s=cost_s)

    assert [found.is_note for found in notes_if_cheap([finding(0.3), finding(0.3)])] == [False, False]
    assert [found.is_note for found in notes_if_cheap([finding(0.3)])] == [True]


def test_spurious_retransmissions_are_ignored(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    reply = g3({"status": "OK"})
    begin = talk.isn[1] + 1 + talk.sent[1]
    retransmitted(talk, 1, reply, (0.9,))
    talk.sent[1] += len(reply)
    block = b"\x01\x01\x05\x0a" + struct.pack(">II", begin, begin + len(reply))
    talk.add(0, ACK, options=stamp(1, 1) + block)
    assert findings(read(cluster.packets)) == []


def transfer(talk: Talk, size: int, change: Callable[[int], str] = lambda number: "") -> None:
    """Send data in segments of 1,448 bytes; some are lost, repaired or overtaken."""
    data, begin = bytes(size), talk.isn[1] + 1 + talk.sent[1]
    pending: list[int] = []
    for number, at in enumerate(range(0, size, 1448)):
        what = change(number)
        if what == "lost before":
            pending.append(at)
        else:
            talk.add(1, ACK, data[at : at + 1448], seq=begin + at, identification=number + 1)
        if what == "lost behind":
            talk.add(1, ACK, data[at : at + 1448], seq=begin + at, identification=number + 2_001)
        if pending and number % 10 == 9:
            for place in pending:
                again = place // 1448 + (1 if what == "overtaken" else 2_001)
                talk.add(1, ACK, data[place : place + 1448], seq=begin + place, identification=again)
            pending = []
    for place in pending:
        talk.add(1, ACK, data[place : place + 1448], seq=begin + place, identification=2_000)
    talk.sent[1] += size
    talk.add(0, ACK)


@pytest.mark.parametrize("side", ["before", "behind"])
def test_loss_has_a_direction_and_a_side(read: Read, side: str) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0, step_ns=10_000_000)
    transfer(talk, 1_000_000, lambda number: f"lost {side}" if number % 12 == 6 else "")
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("loss", "w1", "w2")
    assert row["number"] == 57 and f"{side} the capture point" in row["what"]


def test_loss_that_costs_little_is_a_note(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0, step_ns=2_000_000)
    transfer(talk, 1_000_000, lambda number: "lost behind" if number % 97 == 50 else "")
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "loss", "note")["number"] == 7


def test_reordering_is_not_loss(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    begin, data = talk.isn[1] + 1, bytes(1448)
    base = begin + talk.sent[1]
    order = [n + (1 if n % 20 == 0 else -1 if n % 20 == 1 else 0) for n in range(600)]
    for number in order:
        talk.add(1, ACK, data, seq=base + number * 1448, identification=number + 1)
    row = only(read(cluster.packets), "reordering")
    assert (row["source"], row["destination"], row["number"]) == ("w1", "w2", 30)
    assert {row["problem"] for row in findings(read(cluster.packets))} == {"reordering"}


def test_slow_link_of_a_host(read: Read) -> None:
    """Data from w1 flows at 1448 bytes each millisecond, data of others hundred times as fast."""
    cluster = Cluster()
    cluster.work()
    for source, destination, step_ns in (
        ("w1", "w2", 1_000_000), ("w1", "w3", 1_000_000), ("w2", "w3", 10_000), ("w3", "w2", 10_000),
        ("w2", "w1", 10_000), ("w3", "w1", 10_000),
    ):  # fmt: skip
        transfer(cluster.fetch(source, destination, 1.0, step_ns=step_ns), 4_000_000)
    row = only(read(cluster.packets), "slow link")
    assert (row["source"], row["destination"], row["number"]) == ("w1", "", 2)
    assert "evenly at 12 Mbit/s" in row["what"] and "other pairs reach 1.2 Gbit/s" in row["what"]
    assert row["cost_s"] == pytest.approx(5.5, abs=0.3)


def test_slow_process_is_not_a_slow_link(read: Read) -> None:
    """It sends bursts at full rate, with pauses."""
    cluster = Cluster()
    cluster.work()
    for source, destination in (("w1", "w2"), ("w2", "w3"), ("w3", "w2"), ("w3", "w1")):
        talk = cluster.fetch(source, destination, 1.0, step_ns=10_000)
        for _ in range(20):
            transfer(talk, 300_000)
            talk.time_ns += 40_000_000 if source == "w1" else 0
    assert "slow link" not in {row["problem"] for row in findings(read(cluster.packets))}


def test_many_small_messages_are_not_a_slow_link(read: Read) -> None:
    """Their sender sends each one whole, and then has no more to send for 5 ms."""
    cluster = Cluster()
    cluster.work()
    for source, destination in (("w2", "w3"), ("w3", "w2"), ("w3", "w1")):
        transfer(cluster.fetch(source, destination, 1.0, step_ns=10_000), 4_000_000)
    talk = cluster.fetch("w1", "w2", 1.0, step_ns=10_000)
    for _ in range(600):
        talk.say(1, g3({"op": "x"}, bytes(5_000)), mtu=1448)
        talk.time_ns += 5_000_000
    assert findings(read(cluster.packets)) == []


def queued(talk: Talk, number: int, delay_ns: int) -> None:
    """Send data segments; each is acknowledged after a delay, by its timestamp."""
    begin_ns, packets = talk.time_ns, []
    for step in range(number):
        talk.time_ns = begin_ns + step * 5_000_000
        talk.add(1, ACK, bytes(1448) * 30, options=stamp(1000 + step, 1))
        talk.sent[1] += 1448 * 30
        talk.time_ns = begin_ns + step * 5_000_000 + (delay_ns if step > 3 else 100_000)
        talk.add(0, ACK, options=stamp(5, 1000 + step))
    talk.packets += packets


def send_small_messages(cluster: Cluster, source: str, destination: str) -> None:
    """Send 20 messages within a second, which a queue between the two workers delays."""
    server = (WORKERS[destination], 3333)
    talk = cluster.open(WORKERS[source], 45000, server, time_ns=cluster.at(2))
    for number in range(20):
        talk.time_ns = cluster.at(2.1 + number / 20)
        talk.say(0, g3([{"op": "x"}]))


def test_bufferbloat_is_a_long_rtt_under_load(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    queued(talk, 400, 300_000_000)
    send_small_messages(cluster, "w1", "w2")
    row = only(read(cluster.packets), "bufferbloat")
    assert (row["source"], row["destination"]) == ("w1", "w2")
    assert "the RTT is 300 ms" in row["what"] and "behind the capture point" in row["what"]


def echoed(talk: Talk, number: int, step_ns: int, delay_ns: int) -> None:
    """Send data segments that echo the timestamp of the ACK that passed ``delay_ns`` before them."""
    begin_ns = talk.time_ns
    behind = delay_ns // step_ns
    for step in range(number):
        talk.time_ns = begin_ns + step * step_ns
        echo = max(step - behind, 3) + 1 if step > 3 else step
        talk.add(1, ACK, bytes(1448) * 30, options=stamp(1000 + step, echo))
        talk.sent[1] += 1448 * 30
        talk.add(0, ACK, options=stamp(step + 1, 1000 + step))


def test_a_queue_before_the_capture_point_delays_the_sender_s_echo(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    echoed(cluster.fetch("w1", "w2", 2.0), 400, 5_000_000, 300_000_000)
    send_small_messages(cluster, "w1", "w2")
    row = only(read(cluster.packets), "bufferbloat")
    assert (row["source"], row["destination"]) == ("w1", "w2")
    assert "the RTT is 300 ms" in row["what"] and "before the capture point" in row["what"]


def test_a_sender_that_pauses_has_no_queue(read: Read) -> None:
    """Each of its bursts echoes the ACK of the burst before it."""
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    for burst in range(20):
        for segment in range(3):
            talk.add(1, ACK, bytes(1448) * 30, options=stamp(1000 + 10 * burst + segment, burst + 1))
            talk.sent[1] += 1448 * 30
        talk.add(0, ACK, options=stamp(burst + 2, 1002 + 10 * burst))
        talk.time_ns += 300_000_000
    assert findings(read(cluster.packets)) == []


def test_delayed_acks_with_small_writes(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    for number in range(20):
        talk.add(1, ACK | PSH, bytes(30), options=stamp(100 + 2 * number, 1))
        talk.sent[1] += 30
        talk.time_ns += 41_000_000
        talk.add(0, ACK, options=stamp(7, 100 + 2 * number))
    row = only(read(cluster.packets), "delayed ACKs")
    assert (row["source"], row["number"]) == ("w1", 19) and "came 41 ms late" in row["what"]


def with_mac(packets: list[Packet], macs: dict[str, str]) -> list[Packet]:
    """Set source MAC addresses by source IP address."""
    result = []
    for time_ns, data, length in packets:
        mac = macs.get(str(ip_address(data[26:30])), "")
        result.append((time_ns, data[:6] + bytes.fromhex(mac or "020000000099") + data[12:], length))
    return result


def test_duplicate_ip_is_seen_by_its_mac_addresses(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    packets = with_mac(cluster.packets, {a: f"0200000000{n:02x}" for n, a in enumerate(WORKERS.values(), 1)})
    half = len(packets) // 2
    for place in (half, half + 40):
        time_ns, data, length = next(p for p in packets[place:] if p[1][26:30] == bytes([10, 0, 0, 3]))
        other = data[:6] + b"\x02\x00\x00\x00\x00\x77" + data[12:]
        packets.append((time_ns + 1000, other, length))
    row = only(read(sorted(packets, key=lambda p: p[0])), "duplicate IP")
    assert row["source"] == "w2" and "02:00:00:00:00:02 and 02:00:00:00:00:77" in row["what"]


def test_duplicate_ip_is_seen_in_arp(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for number, mac in enumerate((b"\x02\0\0\0\0\x02", b"\x02\0\0\0\0\x77")):
        arp = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, mac, bytes([10, 0, 0, 3]), bytes(6), bytes(4))
        frame = b"\xff" * 6 + mac + b"\x08\x06" + arp
        cluster.streams["w1"].packets.append((cluster.at(3 + number), frame, len(frame)))
    row = only(read(cluster.packets), "duplicate IP")
    assert row["certainty_pct"] == 95 and "both announce it" in row["what"]


def test_one_direction_of_some_connections_is_an_asymmetric_path(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for _ in range(4):
        talk = cluster.fetch("w1", "w2", 2.0)
        talk.say(1, g3({"status": "OK"}, bytes(30_000)))
        talk.packets = [p for p in talk.packets if p[1][26:30] == bytes([10, 0, 0, 3])]
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("asymmetric path", "w1", "w2")
    assert only(read(cluster.packets), "incomplete capture", "note")


def test_worker_that_announces_another_network(read: Read) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    talk = cluster.streams["w2"]
    talk.say(0, g3({"op": "heartbeat_worker", "address": "tcp://172.16.0.3:3333", "name": "w2"}))
    talk.say(1, g3({"status": "OK"}))
    data = cluster.open("10.0.0.2", 47000, ("172.16.0.3", 3333), time_ns=cluster.at(2))
    data.say(0, g3({"op": "get_data", "keys": ["x"], "who": "tcp://10.0.0.2:3333"}))
    data.say(1, g3({"status": "OK"}))
    row = only(read(cluster.packets), "wrong interface")
    assert (
        row["source"] == "w2"
        and "announces 172.16.0.3 but reaches the scheduler from 10.0.0.3" in row["what"]
    )


def test_tls_without_keys_comes_first() -> None:
    row = findings(golden_capture("tls-2026.8.0"))
    assert row == []
    result = CliRunner().invoke(wire, ["problems", str(DATA / "tls-2026.8.0.pcap.gz")])
    assert result.stdout.startswith("1. TLS without keys\n   9 tls connections with ")


def test_transfers_that_were_not_captured_show_the_wrong_capture_point(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.streams["w1"]
    for number in range(4):
        steps = [{"action": "transfer", "start": 1.7e9, "stop": 1.7e9 + 1}]
        talk.say(1, g3([{"op": "compute-task", "key": f"t{number}"}]))
        talk.say(0, g3([{"op": "task-finished", "key": f"t{number}", "thread": 1, "startstops": steps}]))
    row = findings(read(cluster.packets))[0]
    assert row["problem"] == "wrong capture point" and "report 4 tasks with transfers" in row["what"]


def test_client_only_shows_the_wrong_capture_point(read: Read) -> None:
    client = Talk(client=("10.0.0.9", 50000)).open().say(0, g3(HELLO)).say(1, g3(HELLO))
    client.say(0, g3({"op": "register-client", "client": "c", "reply": False})).say(1, g3({"status": "OK"}))
    client.say(0, g3([{"op": "update-graph"}])).say(1, g3([{"op": "key-in-memory", "key": "x"}]))
    assert findings(read(client.packets))[0]["problem"] == "wrong capture point"


def test_bytes_lost_by_the_capture(read: Read) -> None:
    data = [i for i, p in enumerate(PACKETS) if len(p[1]) > 3000]
    row = only(read([p for i, p in enumerate(PACKETS) if i != data[3]]), "incomplete capture")
    assert row["number"] == PACKETS[data[3]][2] - 66 and "were acknowledged but not captured" in row["what"]


def test_small_snaplen_is_an_incomplete_capture(read: Read, tmp_path: Path) -> None:
    capture = read(pcap(PACKETS, snaplen=96))
    rows_ = [row for row in findings(capture) if "were truncated to 96 bytes" in row["what"]]
    number = sum(length > 96 for _, data, length in PACKETS if data[12:14] == b"\x08\x00")
    assert [row["number"] for row in rows_] == [number]
    output = CliRunner().invoke(wire, [str(tmp_path / "capture.pcap")]).stdout
    assert f"SNAPLEN TOO SMALL: {number} packets were truncated to 96 bytes" in output


def test_sufficient_snaplen_is_not_a_problem(read: Read) -> None:
    """Only payload is truncated."""
    cluster = Cluster()
    cluster.work()
    cluster.fetch("w1", "w2", 1.0).say(1, g3({"status": "OK"}, bytes(30_000)), mtu=40_000)
    capture = read(pcap(cluster.packets, snaplen=300))
    assert (capture.segments.captured < capture.segments.length).any() and findings(capture) == []


def test_damaged_file_is_a_problem_and_a_truncated_one_a_note(read: Read) -> None:
    cut = only(read(pcap(PACKETS)[:-3]), "incomplete capture", "note")
    assert "truncated: the last record" in cut["what"]
    raw = bytearray(pcap(PACKETS))
    place = len(pcap(PACKETS[:300]))
    raw[place : place + 16] = b"\xff" * 16
    assert any("damaged at byte" in row["what"] for row in findings(read(bytes(raw))))


def test_erred_tasks_and_busy_workers(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.streams["w1"]
    talk.say(
        0, g3([{"op": "task-erred", "key": "a", "thread": 1}, {"op": "task-erred", "key": "b", "thread": 1}])
    )
    cluster.fetch("w1", "w2", 2.0).say(1, g3({"status": "busy"}))
    capture = read(cluster.packets)
    assert (only(capture, "erred tasks")["source"], only(capture, "erred tasks")["number"]) == ("w1", 2)
    assert only(capture, "busy workers", "note")["destination"] == "w2"


def test_problems_are_ranked_by_cost() -> None:
    def finding(kind: str, node: str, cost_s: float, **more: Any) -> Finding:
        return Finding(kind, "evidence", ("", node, ""), (0, 1), cost_s, **more)

    cause, effect = finding("blocked worker loop", "w1", 2.0), finding("zero window", "w1", 3.0)
    other, note = finding("zero window", "w2", 4.0), finding("loss", "w3", 9.0, is_note=True)
    first = finding("TLS without keys", "", 0.0)
    result = ranked([note, other, effect, cause, first])
    assert [(f.kind, f.pair[1], f.cost_s) for f in result[:3]] == [
        ("TLS without keys", "", 0.0), ("blocked worker loop", "w1", 5.0), ("zero window", "w2", 4.0),
    ]  # fmt: skip
    assert [f.pair[1] for f in result[3:]] == ["w3", "w1"]
    assert result[4].what == "evidence (a consequence of: blocked worker loop of w1)"


@pytest.mark.parametrize("costs", [(1.0, 2.0), (2.0, 1.0)])
def test_findings_that_explain_each_other_do_not_hide_each_other(costs: tuple[float, float]) -> None:
    kinds = ("loss", "retransmission time-outs")
    assert all(kind in KINDS[other].effects for kind, other in (kinds, kinds[::-1]))
    one, two = (
        Finding(kind, "evidence", ("", "w1", ""), (0, 1), cost_s)
        for kind, cost_s in zip(kinds, costs, strict=True)
    )
    first, second = ranked([one, two])
    assert (first.kind, first.cost_s, first.is_note) == (kinds[costs.index(2.0)], 3.0, False)
    assert second.is_note and second.kind != first.kind


def test_reordering_explains_loss() -> None:
    """TCP retransmits what was only overtaken; lost segments do not overtake."""
    assert "loss" in KINDS["reordering"].effects and "reordering" not in KINDS["loss"].effects


def test_display_filter_lists_few_connections_and_one_host_of_many(read: Read) -> None:
    cluster = Cluster()
    connections = read(cluster.packets).connections
    few = display_filter(Finding("loss", "", when=(SECOND_NS, 2 * SECOND_NS), flows=(0, 1)), connections)
    assert few == (
        "(ip.addr == 10.0.0.1 && ip.addr == 10.0.0.2) && (tcp.port == 8786 && tcp.port == 40000) &&"
        " (tcp.analysis.retransmission) && frame.time_epoch >= 0.999000 && frame.time_epoch <= 2.001000"
    )
    for number in range(5, 10):
        cluster.open(f"10.0.0.{number}", 40000)
    connections = read(cluster.packets).connections
    many = display_filter(Finding("loss", "", flows=tuple(range(0, 16, 2))), connections)
    assert many == "ip.addr == 10.0.0.1 && (tcp.analysis.retransmission)"


def test_effects_are_kinds() -> None:
    for kind in KINDS.values():
        assert kind.effects <= set(KINDS) - {kind.name}


def test_reference_of_the_kinds_is_current() -> None:
    for path, text in wire_reference.pages().items():
        assert path.read_text() == text, "run: python -m tests.wire_reference"


def test_transfers_have_throughput_and_rtt(read: Read) -> None:
    talk = Talk(step_ns=1_000_000).open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, g3({"op": "get_data", "keys": ["x"], "who": "tcp://10.0.0.2:3333"}))
    reply = g3({"status": "OK", "data": {"x": {"__Serialized__": 1}}}, bytes(10 * 1448))
    talk.say(1, reply)
    table = read(talk.packets).table("transfers")
    packets = -(-len(reply) // 1448)
    assert table["wire_ms"] == [pytest.approx(packets - 1)]
    assert table["mb_s"] == [pytest.approx(len(reply) / 1e6 / ((packets - 1) / 1e3), abs=1e-3)]
    assert table["rtt_min_ms"] == [pytest.approx(1.0)]
