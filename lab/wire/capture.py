"""A capture: from files to messages. This is the library's front door, see README.md in this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lab.wire import pcap, pcapng
from lab.wire.columns import Columns
from lab.wire.comm import Framed, simple_messages, walk
from lab.wire.connections import Connections, split_reused
from lab.wire.errors import WireError
from lab.wire.framing import Generation, generation_of, recognise
from lab.wire.link import ACK, SYN, Segments, Tally, segments
from lab.wire.lockstep import Ints
from lab.wire.messages import Messages, build
from lab.wire.nodes import Nodes, recognise_nodes
from lab.wire.pcap import Progress, Records
from lab.wire.products import make
from lab.wire.protocols import Streams, uncover
from lab.wire.schema import Table
from lab.wire.source import Advisor, Memory, map_file
from lab.wire.stream import ByteStream, Stream
from lab.wire.tcp import Disorder, Pieces, by_flow, reassemble
from lab.wire.tls import KeyLog, read_key_log

PEEK = 1 << 20  # bytes in which a file's first packet is found
Report = Callable[[float], None]  # told the share of the files read so far, 0 to 1


@dataclass(frozen=True)
class File:
    """One file of a capture and how reading it went."""

    path: str
    bytes: int
    progress: Progress


@dataclass
class Dialogue:
    """One connection that carries Dask: its two streams (by direction) and their messages."""

    connection: int
    protocol: str  # tcp, tls, ws, wss
    streams: dict[int, ByteStream] = field(default_factory=dict)
    framed: dict[int, Framed] = field(default_factory=dict)


@dataclass
class Capture:
    """Everything that was found in the files. Tables: see ``lab.wire.tables``."""

    files: list[File]
    memory: Memory
    connections: Connections
    tally: Tally
    segments: Segments
    pieces: Pieces
    disorder: Disorder
    dialogues: dict[int, Dialogue]
    names: Mapping[str, str]

    other_protocols: dict[int, str] = field(default_factory=dict)
    _tables: dict[str, Table] = field(default_factory=dict)

    @cached_property
    def messages(self) -> Messages:
        """All Dask messages of the capture, in the order in which they began on the wire."""
        return build(self.dialogues)

    @cached_property
    def nodes(self) -> Nodes:
        """Who is who."""
        return recognise_nodes(self.messages, self.dialogues, self.connections, self.names)

    @cached_property
    def sources(self) -> npt.NDArray[np.object_]:
        """Name of the sending node of each flow; the receiver's is that of ``flow ^ 1``."""
        names = np.empty(2 * len(self.connections), object)
        for flow in range(len(names)):
            address, port, _, _ = self.connections.endpoints(flow)
            names[flow] = self.nodes.name(address, port)
        return names

    @cached_property
    def generation(self) -> str:
        """Framing that the cluster speaks; G2 and G3 are told apart by what only G3 writes, or by stated
        versions.
        """
        spoken = {f.generation for d in self.dialogues.values() for f in d.framed.values() if f.generation}
        if Generation.G23 in spoken:
            spoken.discard(Generation.G23)
            spoken.add(Generation.G3 if Generation.G3 in spoken else generation_of(self.nodes.versions))
        return "+".join(sorted(g.value for g in spoken))

    def table(self, name: str) -> Table:
        """A table of ``lab.wire.schema.TABLES``."""
        if name not in self._tables:
            self._tables.update(make(self, name))
        return self._tables[name]

    def rows_of(self, connection: int) -> Ints:
        """Rows of a connection's segments, both directions."""
        order, begin = self._by_connection
        return order[begin[connection] : begin[connection + 1]]

    @cached_property
    def _by_connection(self) -> tuple[Ints, Ints]:
        connection = self.segments.flow // 2
        order = by_flow(connection)
        return order, np.searchsorted(connection[order], np.arange(len(self.connections) + 1))


def open_capture(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    names: Mapping[str, str] | None = None,
    key_log: str | None = None,
    report: Report | None = None,
) -> Capture:
    """Read one capture, or several that belong together, and find the Dask messages in it.

    ``names`` maps addresses (``10.0.0.1`` or ``10.0.0.1:8786``) to node names; ``since_ns``/``until_ns``
    bound the packets looked at (nanoseconds since 1970). ``key_log`` is the text of a TLS key log. Raises
    WireError when a file is no capture. A damaged or cut-off file gives what could be read;
    ``Capture.files`` says what was wrong.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    memory, table, tally = Memory(), Connections(), Tally()
    files: list[File] = []
    columns = Columns(Segments.TYPES)
    for index, path in enumerate(map(Path, listed)):
        view = map_file(path)
        progress = Progress()
        files.append(File(str(path), len(view), progress))
        base = memory.add(view)
        for records in read_blocks(path, view, progress):
            chosen = _between(records, since_ns, until_ns)
            share = (index + progress.position / len(view)) / len(listed)
            for part in segments(view, base, chosen, table, tally):
                columns.add(part.columns(), share)
            if report:
                report(share)
    together = Segments(*columns.arrays())
    if len(files) > 1:
        together = together.take(np.argsort(together.time_ns, kind="stable"))
    logs = [f.progress.secrets.decode("ascii", "replace") for f in files] + ([key_log] if key_log else [])
    return decode(files, memory, table, tally, together, names or {}, read_key_log("\n".join(logs)))


def decode(
    files: list[File],
    memory: Memory,
    table: Connections,
    tally: Tally,
    together: Segments,
    names: Mapping[str, str],
    secrets: KeyLog,
) -> Capture:
    """From segments to messages."""
    opening = np.flatnonzero(together.flags & (SYN | ACK) == SYN)
    split_reused(together.flow, opening, together.seq, table)
    pieces, disorder = reassemble(together)
    dialogues, others = _dialogues(memory, together, pieces, secrets)
    return Capture(files, memory, table, tally, together, pieces, disorder, dialogues, names, others)


def read_blocks(path: Path, view: memoryview, progress: Progress) -> Iterable[Records]:
    """The packets of a file of either format, from where ``progress`` stands. Raises WireError."""
    for recognised, blocks in ((pcap.is_pcap, pcap.blocks), (pcapng.is_pcapng, pcapng.blocks)):
        if recognised(view):
            try:
                yield from blocks(view, progress, Advisor(view))
            except WireError as error:
                raise WireError(f"{path}: {error}") from None
            return
    what = "empty" if not len(view) else "neither pcap nor pcapng"
    raise WireError(f"{path}: {what}")


def first_packet_ns(paths: Iterable[str | os.PathLike[str]]) -> int:
    """Time of the first packet of several files. Raises WireError."""
    times = []
    for path in map(Path, paths):
        view = map_file(path)
        for records in read_blocks(path, view[:PEEK], Progress()):
            times.append(int(records.time_ns[0]))
            break
    if not times:
        raise WireError("no packets in these files")
    return min(times)


def _between(records: Records, since_ns: int | None, until_ns: int | None) -> Records:
    if since_ns is None and until_ns is None:
        return records
    time_ns = records.time_ns
    until_ns = np.iinfo(np.int64).max if until_ns is None else until_ns
    return records.take((time_ns >= (since_ns or 0)) & (time_ns < until_ns))


def _dialogues(
    memory: Memory, together: Segments, pieces: Pieces, secrets: KeyLog
) -> tuple[dict[int, Dialogue], dict[int, str]]:
    """The connections that carry Dask, walked; and what the others were recognised as."""
    found: dict[int, Dialogue] = {}
    others: dict[int, str] = {}
    streams, simple = streams_of(memory, together, pieces)
    for connection in sorted({flow // 2 for flow in streams}):
        below: Streams = {d: streams[2 * connection + d] for d in (0, 1) if 2 * connection + d in streams}
        protocol, both = uncover(below, secrets)
        ready = {d: simple[2 * connection + d] for d in both} if both is below else {}
        dialogue = Dialogue(connection, protocol, both)
        if walk_dialogue(dialogue, ready):
            found[connection] = dialogue
        elif protocol != "tcp":
            others[connection] = protocol
    return found, others


def walk_dialogue(dialogue: Dialogue, simple: Mapping[int, npt.NDArray[np.int8]]) -> bool:
    """Find the messages of a connection; False when it does not carry Dask."""
    both = {d: stream for d, stream in dialogue.streams.items() if len(stream.start)}
    generation = next(filter(None, (recognise(s, int(s.start[0])) for s in both.values())), None)
    for direction, stream in both.items():
        if generation is None and stream.opened and stream.start[0] == 0:
            continue  # its beginning was seen, and is not Dask
        framed = Framed(generation, int(stream.start[0]))
        walk(stream, framed, simple.get(direction))
        generation = generation or framed.generation
        dialogue.framed[direction] = framed
    return generation is not None


def streams_of(
    memory: Memory, together: Segments, pieces: Pieces
) -> tuple[dict[int, Stream], dict[int, npt.NDArray[np.int8]]]:
    """The streams by flow, and for each piece whether it is exactly one simple message."""
    simple = np.zeros(len(pieces.start), np.int8)
    chosen = np.flatnonzero(pieces.whole & (pieces.length >= 24))
    heads = memory.words(pieces.offset[chosen], 3)
    simple[chosen] = simple_messages(heads, pieces.length[chosen])
    time_ns = together.time_ns[pieces.row]
    streams, forms = {}, {}
    for index, flow in enumerate(pieces.flow.tolist()):
        s = slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
        opened, forms[flow] = bool(pieces.opened[index]), simple[s]
        streams[flow] = Stream(
            memory,
            pieces.start[s],
            pieces.length[s],
            pieces.captured[s],
            pieces.offset[s],
            time_ns[s],
            opened,
        )
    return streams, forms


__all__ = ["Capture", "Dialogue", "File", "Generation", "open_capture"]
