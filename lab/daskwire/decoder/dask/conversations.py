"""Find the connections that carry Dask, and the messages in both directions of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from daskwire.decoder.dask.carriers import KeyLog, Streams, uncover
from daskwire.decoder.dask.framing import Framed, recognise, simple_messages, split_messages
from daskwire.decoder.file.source import Memory
from daskwire.decoder.net.segments import Segments
from daskwire.decoder.net.tcp import ByteStream, Pieces, Stream

Forms = npt.NDArray[np.int8]  # class of each piece of a stream, see ``simple_messages``


@dataclass
class Conversation:
    """A connection that carries Dask.

    Attributes:
        connection: its number.
        protocol: ``tcp``, ``tls``, ``ws`` or ``wss``.
        streams: the byte stream of each direction (0 or 1).
        framed: the messages of each direction.
    """

    connection: int
    protocol: str
    streams: dict[int, ByteStream] = field(default_factory=dict)
    framed: dict[int, Framed] = field(default_factory=dict)


def find_conversations(
    memory: Memory, segments: Segments, pieces: Pieces, secrets: KeyLog
) -> tuple[dict[int, Conversation], dict[int, str]]:
    """Find the messages of all connections.

    Returns:
        The connections that carry Dask, and the protocols of other connections where recognised; both by
        connection number.
    """
    conversations: dict[int, Conversation] = {}
    others: dict[int, str] = {}
    streams, simple = streams_of(memory, segments, pieces)
    for connection in sorted({flow // 2 for flow in streams}):
        tcp: Streams = {d: streams[2 * connection + d] for d in (0, 1) if 2 * connection + d in streams}
        protocol, inner = uncover(tcp, secrets)
        forms = {d: simple[2 * connection + d] for d in inner} if inner is tcp else {}
        conversation = Conversation(connection, protocol, inner)
        if _walk(conversation, forms):
            conversations[connection] = conversation
        elif protocol != "tcp":
            others[connection] = protocol
    return conversations, others


def _walk(conversation: Conversation, simple: Mapping[int, Forms]) -> bool:
    """Find the messages of a connection. Return False if it does not carry Dask."""
    streams = {d: stream for d, stream in conversation.streams.items() if len(stream.start)}
    generation = next(filter(None, (recognise(s, int(s.start[0])) for s in streams.values())), None)
    for direction, stream in streams.items():
        if generation is None and stream.opened and stream.start[0] == 0:
            continue  # its beginning was captured and is not Dask
        framed = Framed(generation, int(stream.start[0]))
        split_messages(stream, framed, simple.get(direction))
        generation = generation or framed.generation
        conversation.framed[direction] = framed
    return generation is not None


def streams_of(
    memory: Memory, segments: Segments, pieces: Pieces
) -> tuple[dict[int, Stream], dict[int, Forms]]:
    """Build the stream of each flow, and classify its pieces."""
    simple = np.zeros(len(pieces.start), np.int8)
    candidates = np.flatnonzero(pieces.whole & (pieces.length >= 24))
    heads = memory.words(pieces.offset[candidates], 3)
    simple[candidates] = simple_messages(heads, pieces.length[candidates])
    streams, forms = {}, {}
    for index, flow in enumerate(pieces.flow.tolist()):
        forms[flow] = simple[int(pieces.begin[index]) : int(pieces.begin[index + 1])]
        streams[flow] = stream_of(memory, segments, pieces, index)
    return streams, forms


def stream_of(memory: Memory, segments: Segments, pieces: Pieces, index: int) -> Stream:
    """Build the stream of one flow; ``index`` is its place in ``pieces``."""
    part = slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
    return Stream(
        memory,
        pieces.start[part],
        pieces.length[part],
        pieces.captured[part],
        pieces.offset[part],
        segments.time_ns[pieces.row[part]],
        bool(pieces.opened[index]),
    )
