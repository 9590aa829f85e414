"""The connections that carry Dask, and the messages in both directions of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from daskwire.dask.comm import Framed, simple_messages, walk
from daskwire.dask.framing import recognise
from daskwire.dask.protocols import Streams, uncover
from daskwire.dask.tls import KeyLog
from daskwire.file.memory import Memory
from daskwire.net.segments import Segments
from daskwire.net.stream import ByteStream, Stream
from daskwire.net.tcp import Pieces

Forms = npt.NDArray[np.int8]  # for each piece of a stream whether it is exactly one simple message


@dataclass
class Dialogue:
    """One connection that carries Dask: its two streams (by direction) and their messages."""

    connection: int
    protocol: str  # tcp, tls, ws, wss
    streams: dict[int, ByteStream] = field(default_factory=dict)
    framed: dict[int, Framed] = field(default_factory=dict)


def find_dialogues(
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
        if _walk(dialogue, ready):
            found[connection] = dialogue
        elif protocol != "tcp":
            others[connection] = protocol
    return found, others


def _walk(dialogue: Dialogue, simple: Mapping[int, Forms]) -> bool:
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
) -> tuple[dict[int, Stream], dict[int, Forms]]:
    """The streams by flow, and the forms of their pieces."""
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
