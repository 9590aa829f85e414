"""Decode a capture file while it is still being written.

Between polls only the segments of incomplete messages are stored. Position 0 of each flow moves to the end of
its last complete message, so streams of any length can be followed. Missing bytes count as lost when later
bytes are PATIENCE_NS old. Of more than MAX_CONNECTIONS connections, those that were idle longest are
forgotten; if such a connection goes on, it is recognised again. TLS and WebSocket connections are not
decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from daskwire.analysis.live.recording import HEAD_BYTES, NOTHING, Payload
from daskwire.base.arrays import NONE, Ints
from daskwire.base.errors import WireError
from daskwire.decoder.dask.content import UndecodableError, unpack
from daskwire.decoder.dask.conversations import Forms, streams_of
from daskwire.decoder.dask.framing import EVERYTHING, Framed, Generation, recognise, split_messages
from daskwire.decoder.dask.nodes import Endpoint, parse_address
from daskwire.decoder.file import pcap
from daskwire.decoder.file.reading import read_blocks
from daskwire.decoder.file.records import Progress
from daskwire.decoder.file.source import Memory, is_packed, map_open
from daskwire.decoder.net.packets.headers import parse_segments
from daskwire.decoder.net.packets.layers import TUNNEL_PORTS, Shared
from daskwire.decoder.net.packets.notices import Macs
from daskwire.decoder.net.segments import ACK, SYN, Segments, concatenate, sort_by_time
from daskwire.decoder.net.tcp import Pieces, Stream, arrival, reassemble

PATIENCE_NS = 2_000_000_000
FIRST_MESSAGE = 4096  # bytes; a longer stream that does not begin with a Dask message is not Dask
IDENTIFYING = frozenset({"register-worker", "heartbeat_worker"})
MAX_CONNECTIONS = 100_000  # with or without Dask; each occupies a few hundred bytes
RESERVED_BYTES = 1 << 50  # address space for the growing file


Value = TypeVar("Value")


@dataclass(frozen=True)
class NewMessage:
    """A message: time of its first byte, flow, size in bytes, kind (a ``MessageKind``), ops.

    ``worker`` is the address that a worker announces in it, and the name that it chose, if any.
    """

    time_ns: int
    flow: int
    size: int
    kind: int
    ops: tuple[str, ...]
    worker: tuple[Endpoint, str | None] | None = None


@dataclass
class Following:
    """A flow that carries Dask: its generation, and the sequence number where its next message begins."""

    generation: Generation
    origin: int


class Follower:
    """Reads a growing file. Each ``poll`` returns the messages that became complete since the last one."""

    def __init__(self, path: Path, name: str = "", tunnel_ports: Mapping[int, str] | None = None) -> None:
        self.path, self.name = path, name or str(path)
        self._shared = Shared({**TUNNEL_PORTS, **(tunnel_ports or {})})
        self._progress = Progress()
        self._memory = Memory()
        self._base = self._memory.add(memoryview(b""), RESERVED_BYTES)
        self._unfinished = concatenate([])
        self._flows: dict[int, Following] = {}
        self._syn_seq: dict[int, int] = {}  # flow -> sequence number of its SYN
        self._active_ns = np.zeros(0, np.int64)  # when each connection was last active
        self._payload: list[Ints] = []  # file positions and sizes of payload that nobody reads, as columns
        self._newest_ns = 0
        self._size = 0

    def poll(self, final: bool = False) -> list[NewMessage]:
        """Read what was added to the file.

        Args:
            final: nothing more will be added, so missing bytes are lost.

        Raises:
            WireError: the file cannot be read.
        """
        if len(self._shared.connections) > MAX_CONNECTIONS:
            self._forget_idle()
        new = self._read()
        self._note_active(new)
        self._forget_reopened(new)
        segments = concatenate([part for part in (self._unfinished, new) if len(part)])
        if not len(segments):
            return []
        sort_by_time(segments)
        self._newest_ns = max(self._newest_ns, int(segments.time_ns.max()))
        pieces, _ = reassemble(segments, {flow: state.origin for flow, state in self._flows.items()})
        streams, forms = streams_of(self._memory, segments, pieces)
        messages: list[NewMessage] = []
        decoded = np.zeros(len(pieces.flow), np.int64)  # stream position up to which each flow is decoded
        for index, flow in enumerate(pieces.flow.tolist()):
            framed = self._walk(flow, streams, forms[flow], EVERYTHING if final else None)
            decoded[index] = framed.position
            part = slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
            self._note_payload(framed, pieces, part)
            if framed.generation is not None:
                origin = int(pieces.zero[index]) + framed.position & 0xFFFFFFFF
                self._flows[flow] = Following(framed.generation, origin)
                messages += _messages(flow, streams[flow], framed)
        needed = pieces.start + pieces.length > np.repeat(decoded, np.diff(pieces.begin))
        self._unfinished = segments.take(np.sort(pieces.row[needed]))
        return sorted(messages, key=lambda message: message.time_ns)

    def _note_active(self, new: Segments) -> None:
        more = len(self._shared.connections) - len(self._active_ns)
        self._active_ns = np.append(self._active_ns, np.zeros(more, np.int64))
        self._active_ns[new.flow >> 1] = new.time_ns

    def _forget_idle(self) -> None:
        """Forget half of the connections, those without Dask first, and renumber the others."""
        has_dask = np.zeros(len(self._active_ns), bool)
        has_dask[[flow >> 1 for flow in self._flows]] = True
        latest = np.sort(np.lexsort((self._active_ns, has_dask))[-(MAX_CONNECTIONS // 2) :])
        place = np.full(len(self._active_ns), NONE, np.int32)
        place[latest] = np.arange(len(latest))
        connections = self._shared.connections.subset(latest.tolist())
        self._shared = replace(self._shared, connections=connections, macs=Macs())
        self._active_ns = self._active_ns[latest]
        self._flows = _renumbered(self._flows, place)
        self._syn_seq = _renumbered(self._syn_seq, place)
        unfinished = self._unfinished.take(place[self._unfinished.flow >> 1] != NONE)
        unfinished.flow[:] = 2 * place[unfinished.flow >> 1] + (unfinished.flow & 1)
        self._unfinished = unfinished

    def _forget_reopened(self, new: Segments) -> None:
        """Forget a connection when a SYN with another sequence number reuses its ports."""
        for row in np.flatnonzero(new.flags & (SYN | ACK) == SYN).tolist():
            flow, seq = int(new.flow[row]), int(new.seq[row])
            if self._syn_seq.setdefault(flow, seq) != seq:
                self._syn_seq[flow] = seq
                for direction in (flow, flow ^ 1):
                    self._flows.pop(direction, None)
                others = np.flatnonzero(self._unfinished.flow // 2 != flow // 2)
                self._unfinished = self._unfinished.take(others)

    def _note_payload(self, framed: Framed, pieces: Pieces, part: slice) -> None:
        """Note the pieces of a flow that contain nothing but frames of large messages, or no Dask at all."""
        start, captured = pieces.start[part], pieces.captured[part].astype(np.int64)
        offset, skipped = pieces.offset[part] - self._base, np.full(len(start), HEAD_BYTES)
        if framed.generation is not None:
            rows = framed.table()
            begin, end = rows[:, 0] + rows[:, 3] + rows[:, 4], rows[:, 0] + rows[:, 1]
            begin, end = begin[end - begin > HEAD_BYTES], end[end - begin > HEAD_BYTES]
            message = np.searchsorted(begin, start, side="right") - 1
            inside = (message >= 0) & (start + pieces.length[part] <= np.append(end, 0)[message])
            skipped = np.where(inside, 0, captured)
        is_payload = captured > skipped
        columns = (offset + skipped)[is_payload], (captured - skipped)[is_payload]
        if is_payload.any():
            self._payload.append(np.stack(columns))

    def payload(self) -> Payload:
        """Return the payload that nobody reads. What is below ``needed`` is returned only once."""
        if not self._payload:
            return NOTHING
        columns = np.concatenate(self._payload, axis=1)
        columns = columns[:, np.argsort(columns[0])]
        self._payload = [columns[:, columns[0] >= self.needed]]
        return Payload(*columns)

    @property
    def packets(self) -> int:
        """Number of packets so far, of any kind."""
        return self._shared.tally.packets + sum(self._progress.skipped.values())

    @property
    def wire_bytes(self) -> int:
        """Bytes of all packets on the wire so far."""
        return self._shared.tally.bytes

    @property
    def position(self) -> int:
        """How far the file was read, bytes."""
        return self._progress.position

    @property
    def needed(self) -> int:
        """Position in the file below which nothing will be read again."""
        unfinished = (
            int(self._unfinished.offset.min()) - self._base if len(self._unfinished) else self.position
        )
        return min(unfinished, self.position)

    def addresses(self, flow: int) -> tuple[str, str]:
        """Return the IP addresses of sender and receiver."""
        source, _, destination, _ = self._shared.connections.endpoints(flow)
        return source, destination

    def recorded(self) -> memoryview:
        """Return the file as far as it was read."""
        return self._memory.regions()[0][1]

    def check(self) -> None:
        """Raise WireError if the file is damaged, so that nothing after that position can be read."""
        if self._progress.damaged:
            raise WireError(f"{self.name}: {self._progress.problem}")

    def _read(self) -> Segments:
        previous, self._size = self._size, self._size_now()
        if self._size == previous or self._size <= pcap.HEADER or self._progress.damaged:
            return concatenate([])
        view = self._map()
        self._memory.replace(self._base, view)
        return concatenate(
            part
            for records in read_blocks(self.name, view, self._progress)
            for part in parse_segments(view, self._base, records, self._shared)
        )

    def _map(self) -> memoryview:
        with self.path.open("rb") as file:
            if is_packed(file):
                raise WireError(f"{self.name}: a compressed file cannot be followed")
            return map_open(file)

    def _size_now(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError as error:
            raise WireError(f"{self.name}: {error.strerror}") from error

    def _walk(self, flow: int, streams: dict[int, Stream], forms: Forms, settled: int | None) -> Framed:
        """Walk the available bytes of a flow. Bytes below the resulting position are no longer needed."""
        stream, state = streams[flow], self._flows.get(flow)
        if state is not None:
            framed = Framed(state.generation, 0)
        else:
            begin = int(stream.start[0])
            framed = Framed(self._recognise(flow, streams), begin)
            if framed.generation is None and stream.opened and begin == 0:
                enough = int(stream.end[-1]) >= FIRST_MESSAGE
                return Framed(None, int(stream.end[-1]) if enough else 0)
        split_messages(stream, framed, forms, self._settled(stream) if settled is None else settled)
        if framed.generation is None:
            framed.position = int(stream.end[-1])  # nothing was recognised
        return framed

    def _recognise(self, flow: int, streams: dict[int, Stream]) -> Generation | None:
        if flow ^ 1 in self._flows:
            return self._flows[flow ^ 1].generation
        directions = [streams[f] for f in (flow, flow ^ 1) if f in streams]
        return next(filter(None, (recognise(s, int(s.start[0])) for s in directions)), None)

    def _settled(self, stream: Stream) -> int:
        """Return the position below which no more bytes are expected."""
        old = int(np.searchsorted(stream.time_ns, self._newest_ns - PATIENCE_NS, side="right"))
        return int(stream.end[old - 1]) if old else 0


def _messages(flow: int, stream: Stream, framed: Framed) -> list[NewMessage]:
    rows, contents = framed.table(), framed.contents
    ops: dict[int, list[str]] = {}
    for message, name in zip(contents.op_message, contents.op_name, strict=True):
        ops.setdefault(message, []).append(name)
    times = arrival(stream, rows[:, 0]).tolist()
    return [
        NewMessage(
            time_ns,
            flow,
            size,
            kind,
            tuple(ops.get(index, ())),
            _worker(stream, rows[index], ops.get(index, ())),
        )
        for index, (time_ns, size, kind) in enumerate(
            zip(times, rows[:, 1].tolist(), contents.kind, strict=True)
        )
    ]


def _worker(stream: Stream, row: Ints, ops: Sequence[str]) -> tuple[Endpoint, str | None] | None:
    """Return the address and the name of the worker that registers or sends a heartbeat."""
    if not IDENTIFYING & set(ops):
        return None
    position, _, _, body_at, body_size = row.tolist()
    body = stream.read(position + body_at, body_size)
    try:
        fields = unpack(body) if body is not None else None
    except UndecodableError:
        return None
    if not isinstance(fields, dict) or (address := parse_address(fields.get("address"))) is None:
        return None
    name = fields.get("name")
    return address, name if isinstance(name, str) and "://" not in name else None


def _renumbered(by_flow: dict[int, Value], place: npt.NDArray[np.int32]) -> dict[int, Value]:
    """Return a dict with the new numbers of flows; ``place`` has those of connections, NONE if forgotten."""
    return {
        2 * int(place[flow >> 1]) + (flow & 1): value
        for flow, value in by_flow.items()
        if place[flow >> 1] != NONE
    }
