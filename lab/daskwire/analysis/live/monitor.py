"""The figures of a running capture: rates, ops and traffic of the last interval, totals, recent problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daskwire.analysis.live.follower import Follower
from daskwire.analysis.live.recording import Recording, Window
from daskwire.analysis.opening import open_capture
from daskwire.analysis.problems.detect import Verdict, judge
from daskwire.analysis.tables.export import rows
from daskwire.base.errors import WireError
from daskwire.decoder.dask.nodes import Endpoint
from daskwire.decoder.file.source import Source

KINDS_FROM_CUTTING = {
    "undecoded capture",
    "wrong capture point",
    "incomplete capture",
}  # a window has a cut beginning
MAX_HOST_NAMES = 3  # workers of a host that are listed by name
MAX_NAMES = 10_000  # ops and pairs in the totals; names come from the network
ROLES = {  # op -> roles of its sender and its receiver
    "compute-task": ("scheduler", "worker"),
    "task-finished": ("worker", "scheduler"),
    "heartbeat_worker": ("worker", "scheduler"),
    "register-worker": ("worker", "scheduler"),
    "register-client": ("client", "scheduler"),
    "heartbeat-client": ("client", "scheduler"),
    "update-graph": ("client", "scheduler"),
    "get_data": ("", "worker"),
}
Pair = tuple[str, str]  # names of sender and receiver


@dataclass
class Interval:
    """What happened since the last poll.

    Attributes:
        seconds: its length.
        packets: number of packets, of any kind.
        wire_bytes: their size on the wire.
        messages: number of complete Dask messages.
        ops: number of ops, by name.
        pairs: bytes of Dask messages, by IP addresses of sender and receiver.
    """

    seconds: float
    packets: int = 0
    wire_bytes: int = 0
    messages: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    pairs: Counter[Pair] = field(default_factory=Counter)


class Monitor:
    """Decodes a recording as it grows.

    Attributes:
        totals: the sum of all intervals.
        problems: rows of the table of problems, of the last ``window_s`` seconds.
        problem_s: the time span in which they were looked for, seconds.
        verdict: what the last look found, None before it and if nothing could be read.
    """

    def __init__(
        self,
        recording: Recording,
        window_s: float,
        now: float,
        tunnel_ports: Mapping[int, str] | None = None,
    ) -> None:
        self._recording = recording
        self._tunnel_ports = tunnel_ports
        self._follower = Follower(recording.path, recording.name, tunnel_ports)
        self._window_s = window_s
        self._window = Window(recording.name, now)
        self._polled_s = now
        self._roles: dict[str, set[str]] = {}
        self._workers: dict[str, str] = {}  # announced address:port -> name; the address itself if unknown
        self._named_workers: dict[str, set[str]] = {}  # host of the announced address -> names
        self.totals = Interval(0.0)
        self.problems: list[dict[str, Any]] = []
        self.problem_s = 0.0
        self.verdict: Verdict | None = None

    def poll(self, now: float, final: bool = False) -> Interval:
        """Decode what was recorded since the last poll.

        Args:
            now: seconds on any clock that only advances.
            final: nothing more will be recorded.

        Raises:
            WireError: the recording is damaged, or not a capture.
        """
        packets, wire_bytes = self._follower.packets, self._follower.wire_bytes
        interval = Interval(now - self._polled_s)
        for message in self._follower.poll(final):
            source, destination = self._follower.addresses(message.flow)
            interval.messages += 1
            interval.ops.update(message.ops)
            interval.pairs[source, destination] += message.size
            if message.worker:
                self._add_worker(*message.worker)
            for op in message.ops:
                if op in ROLES:
                    self._add_roles(source, destination, *ROLES[op])
        self._follower.check()
        interval.packets = self._follower.packets - packets
        interval.wire_bytes = self._follower.wire_bytes - wire_bytes
        self._add(interval)
        decoded = self._follower.recorded()[: self._follower.needed]
        self._window.add(decoded, self._follower.payload(), self._polled_s)
        self._window.forget(now - self._window_s)
        self._recording.forget(min(self._window.position, self._follower.needed))
        self._polled_s = now
        return interval

    def name(self, address: str) -> str:
        """Return an address with the roles that its messages revealed, and the names of its workers."""
        roles, workers = self._roles.get(address, set()), self._named_workers.get(address, set())
        if 0 < len(workers) <= MAX_HOST_NAMES:
            roles = roles - {"worker"} | workers
        return f"{'+'.join(sorted(roles))} {address}" if roles else address

    def look_for_problems(self) -> None:
        """Decode the last seconds of the recording once more, and rank what is wrong in them."""
        recent = self._window.capture(self._follower.recorded()[: self._follower.position])
        self.problem_s = self._polled_s - self._window.begin_s
        try:
            capture = open_capture(
                Source("the recording", memoryview(recent)),
                names=self._workers,
                tunnel_ports=self._tunnel_ports,
            )
        except WireError:
            self.problems, self.verdict = [], None
            return
        findings = rows(capture.table("problems"))
        self.problems = [
            row
            for row in findings
            if row["severity"] == "problem" and row["problem"] not in KINDS_FROM_CUTTING
        ]
        self.verdict = judge(capture, KINDS_FROM_CUTTING)

    def _add_worker(self, listener: Endpoint, name: str | None) -> None:
        """Remember a worker's name: the window rarely has its registration."""
        address = f"{listener[0]}:{listener[1]}"
        if name or (address not in self._workers and len(self._workers) < MAX_NAMES):
            self._workers[address] = name or address
        if name:
            self._named_workers.setdefault(listener[0], set()).add(name)

    def _add_roles(self, source: str, destination: str, sender: str, receiver: str) -> None:
        for address, role in ((source, sender), (destination, receiver)):
            if role and (address in self._roles or len(self._roles) < MAX_NAMES):
                self._roles.setdefault(address, set()).add(role)

    def _add(self, interval: Interval) -> None:
        totals = self.totals
        totals.seconds += interval.seconds
        totals.packets += interval.packets
        totals.wire_bytes += interval.wire_bytes
        totals.messages += interval.messages
        _count(totals.ops, interval.ops)
        _count(totals.pairs, interval.pairs)


def _count(totals: Counter[Any], new: Counter[Any]) -> None:
    """Add counts; those of new names are omitted when there are too many."""
    for name, number in new.items():
        if name in totals or len(totals) < MAX_NAMES:
            totals[name] += number
