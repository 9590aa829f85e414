"""A capture that is still being written: the same decoding, in pieces.

Between polls only the segments of unfinished messages are kept. Each flow's position 0 moves along with its
last whole message, so streams of any length can be followed. What is missing counts as lost when later bytes
are PATIENCE_NS old. Encrypted connections and WebSockets are not followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskwire.dask.comm import EVERYTHING, Framed, walk
from daskwire.dask.dialogues import Forms, streams_of
from daskwire.dask.framing import Generation, recognise
from daskwire.errors import WireError
from daskwire.file import pcap
from daskwire.file.memory import Memory
from daskwire.file.packed import is_packed
from daskwire.file.reading import read_blocks
from daskwire.file.records import Progress
from daskwire.file.source import map_open
from daskwire.net.connections import Connections
from daskwire.net.headers import segments
from daskwire.net.segments import ACK, SYN, Segments, Tally, concatenate, sort_by_time
from daskwire.net.stream import Stream, arrival
from daskwire.net.tcp import reassemble

PATIENCE_NS = 2_000_000_000
FIRST_MESSAGE = 4096  # a stream of this size that does not begin with Dask is not Dask
ROOM = 1 << 50  # address space for a file to grow into


@dataclass(frozen=True)
class Said:
    """One message: when it began, its flow, size in bytes, kind (``daskwire.dask.content.Kind``) and ops."""

    time_ns: int
    flow: int
    size: int
    kind: int
    ops: tuple[str, ...]


@dataclass
class Following:
    """A flow that speaks Dask: its generation, and the sequence number where its next message begins."""

    generation: Generation
    origin: int


class Follower:
    """Reads one growing file: each ``poll`` gives the messages that became complete since the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tally = Tally()
        self.connections = Connections()
        self._progress = Progress()
        self._memory = Memory()
        self._base = self._memory.add(memoryview(b""), ROOM)
        self._carried = concatenate([])
        self._flows: dict[int, Following] = {}
        self._opened: dict[int, int] = {}  # flow: sequence number of its SYN
        self._newest_ns = 0
        self._size = 0

    def poll(self, final: bool = False) -> list[Said]:
        """Read what was added to the file; ``final``: nothing more will come. Raises WireError."""
        new = self._read()
        self._forget_reopened(new)
        together = concatenate([part for part in (self._carried, new) if len(part)])
        if not len(together):
            return []
        sort_by_time(together)
        self._newest_ns = max(self._newest_ns, int(together.time_ns.max()))
        pieces, _ = reassemble(together, {flow: state.origin for flow, state in self._flows.items()})
        streams, forms = streams_of(self._memory, together, pieces)
        said: list[Said] = []
        done = np.zeros(len(pieces.flow), np.int64)  # per flow: stream position below which nothing is needed
        for index, flow in enumerate(pieces.flow.tolist()):
            framed = self._walk(flow, streams, forms[flow], EVERYTHING if final else None)
            done[index] = framed.position
            if framed.generation is not None:
                origin = int(pieces.zero[index]) + framed.position & 0xFFFFFFFF
                self._flows[flow] = Following(framed.generation, origin)
                said += _messages(flow, streams[flow], framed)
        needed = pieces.start + pieces.length > np.repeat(done, np.diff(pieces.begin))
        self._carried = together.take(np.sort(pieces.row[needed]))
        return sorted(said, key=lambda s: s.time_ns)

    def _forget_reopened(self, new: Segments) -> None:
        """A SYN with another sequence number opens the same ports again: nothing of the old connection goes
        on.
        """
        for row in np.flatnonzero(new.flags & (SYN | ACK) == SYN).tolist():
            flow, seq = int(new.flow[row]), int(new.seq[row])
            if self._opened.setdefault(flow, seq) != seq:
                self._opened[flow] = seq
                for direction in (flow, flow ^ 1):
                    self._flows.pop(direction, None)
                self._carried = self._carried.take(np.flatnonzero(self._carried.flow // 2 != flow // 2))

    def check(self) -> None:
        """Raise WireError when the file is damaged: nothing behind that place will ever be read."""
        if self._progress.damaged:
            raise WireError(f"{self.path}: {self._progress.problem}")

    def _read(self) -> Segments:
        before, self._size = self._size, self._size_now()
        if self._size < before:
            raise WireError(f"{self.path}: became shorter; is it another file now?")
        if self._size == before or self._size <= pcap.HEADER or self._progress.damaged:
            return concatenate([])
        view = self._map()
        self._memory.replace(self._base, view)
        return concatenate(
            part
            for records in read_blocks(self.path, view, self._progress)
            for part in segments(view, self._base, records, self.connections, self.tally)
        )

    def _map(self) -> memoryview:
        with self.path.open("rb") as file:
            if is_packed(file):
                raise WireError(f"{self.path}: a compressed file cannot be followed")
            return map_open(file)

    def _size_now(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError as error:
            raise WireError(f"{self.path}: {error.strerror}") from error

    def _walk(self, flow: int, streams: dict[int, Stream], forms: Forms, settled: int | None) -> Framed:
        """Walk what is there of one flow. Its position afterwards: what lies below it is done with."""
        stream, state = streams[flow], self._flows.get(flow)
        if state is not None:
            framed = Framed(state.generation, 0)
        else:
            begin = int(stream.start[0])
            framed = Framed(self._recognise(flow, streams), begin)
            if framed.generation is None and stream.opened and begin == 0:
                enough = int(stream.end[-1]) >= FIRST_MESSAGE
                return Framed(None, int(stream.end[-1]) if enough else 0)
        walk(stream, framed, forms, self._settled(stream) if settled is None else settled)
        if framed.generation is None:
            framed.position = int(stream.end[-1])  # nothing was recognised in it
        return framed

    def _recognise(self, flow: int, streams: dict[int, Stream]) -> Generation | None:
        if flow ^ 1 in self._flows:
            return self._flows[flow ^ 1].generation
        both = [streams[f] for f in (flow, flow ^ 1) if f in streams]
        return next(filter(None, (recognise(s, int(s.start[0])) for s in both)), None)

    def _settled(self, stream: Stream) -> int:
        """Position below which nothing more is expected."""
        old = int(np.searchsorted(stream.time_ns, self._newest_ns - PATIENCE_NS, side="right"))
        return int(stream.end[old - 1]) if old else 0


def _messages(flow: int, stream: Stream, framed: Framed) -> list[Said]:
    rows, contents = framed.table(), framed.contents
    ops: dict[int, list[str]] = {}
    for message, name in zip(contents.op_message, contents.op_name, strict=True):
        ops.setdefault(message, []).append(name)
    times = arrival(stream, rows[:, 0]).tolist()
    return [
        Said(time_ns, flow, size, kind, tuple(ops.get(index, ())))
        for index, (time_ns, size, kind) in enumerate(
            zip(times, rows[:, 1].tolist(), contents.kind, strict=True)
        )
    ]
