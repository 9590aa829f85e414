"""The causes: every second of a thread has exactly one of them. In the order of tables and pictures."""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE, SERIALISE, PEER, WIRE, RECEIVED, DISK = "compute", "serialise", "peer", "wire", "received", "disk"
LAG, LOGIC, LOOP, TIMER, MESSAGE = "lag", "logic", "loop", "timer", "message"
QUEUE, NOTHING, CLIENT = "queue", "nothing", "client"

WORDS = {
    COMPUTE: "computing",
    SERIALISE: "serialising and deserialising data",
    PEER: "waiting for data: the peer was busy",
    WIRE: "waiting for data: on the wire",
    RECEIVED: "waiting for data: being received",
    DISK: "disk",
    LAG: "had work, did not run it (worker lag)",
    LOGIC: "waiting for the scheduler: its logic",
    LOOP: "waiting for the scheduler: its event loop",
    TIMER: "waiting for the scheduler: Dask's send timers",
    MESSAGE: "waiting for the scheduler: messages on the wire",
    QUEUE: "idle while others queue",
    NOTHING: "nothing to do",
    CLIENT: "waiting for the client (graph, result)",
}
COLOURS = {
    COMPUTE: "#4c9f70",
    SERIALISE: "#b5d99c",
    PEER: "#f2c14e",
    WIRE: "#d1495b",
    RECEIVED: "#f79256",
    DISK: "#7d5ba6",
    LAG: "#8d6a4f",
    LOGIC: "#1b4965",
    LOOP: "#2f78b7",
    TIMER: "#7fb7e6",
    MESSAGE: "#c04ac0",
    QUEUE: "#555555",
    NOTHING: "#dddddd",
    CLIENT: "#b0b0b0",
}

Cell = tuple[str, str]  # a cause, or a culprit, and its place


@dataclass(frozen=True, slots=True)
class Part:
    """Some time with its cause: where it was (a host, or ``receiver < sender``), and for which task."""

    start: float
    stop: float
    cause: str
    place: str
    key: str = ""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.stop - self.start
