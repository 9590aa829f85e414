"""A cluster to build problems into, and the rows that daskwire reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daskwire import Capture, rows

from tests.unit.daskwire.build import ACK, HELLO, PSH, SYN, Packet, Talk, g3

Read = Callable[..., Capture]
SECOND_NS = 1_000_000_000
WORKERS = {"w1": "10.0.0.2", "w2": "10.0.0.3", "w3": "10.0.0.4"}


def findings(capture: Capture, severity: str = "problem") -> list[dict[str, Any]]:
    return [row for row in rows(capture.table("problems")) if row["severity"] == severity]


def only(capture: Capture, problem: str, severity: str = "problem") -> dict[str, Any]:
    (row,) = [row for row in findings(capture, severity) if row["problem"] == problem]
    return row


class Cluster:
    """A scheduler and three workers that compute for ten seconds; connections are built separately.

    Args:
        has_worked: each worker has finished a task, and the client knows.
    """

    def __init__(self, has_worked: bool = True) -> None:
        self.talks: list[Talk] = []
        self.streams = {name: self.open(address, 40000) for name, address in WORKERS.items()}
        for name, talk in self.streams.items():
            own = {"address": f"tcp://{WORKERS[name]}:3333", "name": name}
            talk.say(0, g3({"op": "register-worker", "reply": False, **own}))
            talk.say(1, g3({"status": "OK"}))
            if has_worked:
                talk.say(1, g3([{"op": "compute-task", "key": f"{name}-first"}]))
                talk.say(0, g3([{"op": "task-finished", "key": f"{name}-first", "thread": 1}]))
        self.client = self.open("10.0.0.9", 40000).say(0, g3({"op": "register-client", "client": "Client-1"}))
        self.client.time_ns = max(talk.time_ns for talk in self.talks)
        if has_worked:
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


def retransmitted(talk: Talk, who: int, part: bytes, gaps_s: tuple[float, ...]) -> None:
    """Send a segment, and again after each gap."""
    begin = talk.isn[who] + 1 + talk.sent[who]
    talk.add(who, ACK | PSH, part, seq=begin)
    for gap_s in gaps_s:
        talk.time_ns += round(gap_s * SECOND_NS)
        talk.add(who, ACK | PSH, part, seq=begin)


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
