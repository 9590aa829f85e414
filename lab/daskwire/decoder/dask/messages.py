"""All messages of a capture as arrays, with replies matched to requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import NONE, Ints, ascending, equally_long, require
from daskwire.decoder.dask.content import MessageKind, Note, unpack
from daskwire.decoder.dask.conversations import Conversation
from daskwire.decoder.dask.framing import Generation, NotAHeaderError, decompress, read_header
from daskwire.decoder.net.tcp import ByteStream, arrival, seen_before

COLUMNS = ("position", "size", "frames", "body_at", "body_size")
OP_COLUMNS = ("op_message", "op_name", "op_key", "op_note")


@dataclass(frozen=True)
class Messages:
    """Messages as arrays of equal length, and their ops. No two messages have the same flow and position.

    Attributes:
        flow: the flow that carried the message. Never negative.
        position: stream position of its header. Messages of a flow do not overlap. Negative for what came
            before the first captured byte of a connection that began before the capture.
        size: bytes, header included.
        frames: number of frames, at least 1.
        body_at: offset of the frame with the message proper, relative to ``position``.
        body_size: size of that frame, bytes; the frame is within the message.
        time_ns: when the first byte passed the capture point, in nanoseconds since 1970. Sorted by it.
        end_ns: when the last byte passed. Before ``time_ns`` if the first bytes had to be sent again.
        seen: captured bytes of the message, by their length on the wire: 0 to ``size``.
        kind: see ``daskwire.decoder.dask.content.MessageKind``.
        answer: index of the reply to a request, or of the request to a reply, each of which refers to the
            other and is in the opposite flow. NONE (-1) without.
        op_message: (per op) index of its message. Sorted; a batch has several ops, a reply none.
        op_name: (per op) its name.
        op_key: (per op) its task key, None without.
        op_note: (per op) what ``daskwire.decoder.dask.content`` keeps of it.
    """

    flow: Ints
    position: Ints
    size: Ints
    frames: Ints
    body_at: Ints
    body_size: Ints
    time_ns: Ints
    end_ns: Ints
    seen: Ints
    kind: Ints
    answer: Ints
    op_message: Ints
    op_name: list[str]
    op_key: list[Any]
    op_note: list[Note | None]

    def __len__(self) -> int:
        return len(self.flow)

    def validate(self) -> None:
        """Check what always holds of the messages of a capture.

        Raises:
            InvariantError: something does not hold.
        """
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        ops = {name: columns.pop(name) for name in OP_COLUMNS}
        require(equally_long(columns.values()), "Messages: all columns have the same length")
        require(equally_long(ops.values()), "Messages: all columns of ops have the same length")
        require(ascending(self.time_ns), "Messages.time_ns is sorted")
        require(self.flow >= 0, "Messages.flow is not negative")
        order = np.lexsort((self.position, self.flow))
        flow, start, stop = self.flow[order], self.position[order], (self.position + self.size)[order]
        apart = (flow[1:] != flow[:-1]) | (start[1:] >= stop[:-1])
        require(apart, "Messages.position: messages of a flow do not overlap")
        require((self.seen >= 0) & (self.seen <= self.size), "Messages.seen is 0 to size")
        require(self.frames >= 1, "Messages.frames is at least 1")
        is_inside = (self.body_at > 0) & (self.body_size >= 0) & (self.body_at + self.body_size <= self.size)
        require(is_inside, "Messages.body_at, body_size: the body is within the message")
        require(np.isin(self.kind, [*MessageKind]), "Messages.kind is a MessageKind")
        own = np.flatnonzero(self.answer != NONE)
        other = self.answer[own]
        require((other >= 0) & (other < len(self)), "Messages.answer is NONE or the index of a message")
        require(self.answer[other] == own, "Messages.answer: request and reply refer to each other")
        require(self.flow[other] == self.flow[own] ^ 1, "Messages.answer is in the opposite flow")
        require(ascending(self.op_message), "Messages.op_message is sorted")
        is_index = (self.op_message >= 0) & (self.op_message < len(self))
        require(is_index, "Messages.op_message is the index of a message")

    @cached_property
    def op_numbers(self) -> tuple[list[str], Ints]:
        """The distinct names of the ops, and per op the index of its name among them."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(self.op_name))}
        of_op = np.fromiter(map(numbers.__getitem__, self.op_name), np.int64, len(self.op_name))
        return list(numbers), of_op

    def ops_named(self, names: Collection[str]) -> Ints:
        """Return the indices of the ops with one of these names, in order of time."""
        rows = [self._rows_by_name[name] for name in names if name in self._rows_by_name]
        return np.sort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)

    @cached_property
    def _rows_by_name(self) -> dict[str, Ints]:
        """The indices of the ops with each name, in order of time."""
        names, numbers = self.op_numbers
        order = np.argsort(numbers.astype(np.uint16) if len(names) < 1 << 16 else numbers, kind="stable")
        stops = np.cumsum(np.bincount(numbers, minlength=len(names)))
        return dict(zip(names, np.split(order, stops[:-1]), strict=True)) if names else {}

    @property
    def complete(self) -> npt.NDArray[np.bool_]:
        """Which messages were captured to the last byte."""
        return np.equal(self.seen, self.size)


def build(conversations: Mapping[int, Conversation]) -> Messages:
    """Merge the messages of all conversations in time order, and match replies to requests."""
    parts = [
        (_flow_part(conversation, direction), conversation.framed[direction].contents)
        for conversation in conversations.values()
        for direction in sorted(conversation.framed)
    ]
    table = np.concatenate([rows for rows, _ in parts]) if parts else np.zeros((0, 10), np.int64)
    base = np.cumsum([0, *(len(rows) for rows, _ in parts)])
    order = np.argsort(table[:, 6], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    message = [np.array(c.op_message, np.int64) + b for (_, c), b in zip(parts, base, strict=False)]
    position = place[np.concatenate(message)] if message else np.zeros(0, np.int64)
    sequence = np.argsort(position, kind="stable").tolist()

    def ordered(name: str) -> list[Any]:
        values = [value for _, contents in parts for value in getattr(contents, name)]
        return [values[i] for i in sequence]

    columns = {
        name: table[order, i]
        for i, name in enumerate(("flow", *COLUMNS, "time_ns", "end_ns", "seen", "kind"))
    }
    awaiting = {
        int(place[b + index]) for (_, c), b in zip(parts, base.tolist(), strict=False) for index in c.awaiting
    }
    answer = match(columns["flow"], columns["kind"], awaiting)
    return Messages(
        **columns,
        answer=answer,
        op_message=position[sequence],
        op_name=ordered("op_name"),
        op_key=ordered("op_key"),
        op_note=ordered("op_note"),
    )


def _flow_part(conversation: Conversation, direction: int) -> Ints:
    """Return the messages of a flow, a row each: flow, COLUMNS, time_ns, end_ns, seen, kind."""
    framed, stream = conversation.framed[direction], conversation.streams[direction]
    rows = framed.table()
    result = np.empty((len(rows), 10), np.int64)
    result[:, 0] = 2 * conversation.connection + direction
    result[:, 1:6] = rows
    begin, end = rows[:, 0], rows[:, 0] + rows[:, 1]
    result[:, 6] = arrival(stream, begin)
    result[:, 7] = arrival(stream, end - 1)
    total = seen_before(stream.start, stream.end, np.concatenate([begin, end]))
    result[:, 8] = total[len(rows) :] - total[: len(rows)]
    result[:, 9] = framed.contents.kind
    return result


def match(flow: Ints, kind: Ints, awaiting: set[int]) -> Ints:
    """Match requests to replies. Dask's rpc has one outstanding request per connection.

    If another request follows an unanswered one, its reply was not captured.

    Args:
        flow: of each message.
        kind: of each message.
        awaiting: the messages whose sender waits for a reply.

    Returns:
        Per message the index of the reply or request, NONE without.
    """
    answer = np.full(len(flow), NONE, np.int64)
    pending: dict[int, int] = {}
    rows = np.flatnonzero(kind != MessageKind.BATCH)
    for index, sender, value in zip(rows.tolist(), flow[rows].tolist(), kind[rows].tolist(), strict=True):
        if value == MessageKind.REQUEST:
            pending.pop(sender, None)
            if index in awaiting:
                pending[sender] = index
        elif value != MessageKind.HANDSHAKE:
            request = pending.pop(sender ^ 1, None)
            if request is not None:
                answer[request], answer[index] = index, request
    return answer


def frames(
    messages: Messages, index: int, conversations: Mapping[int, Conversation]
) -> tuple[ByteStream, Generation, list[int], list[int]]:
    """Return stream, generation, and positions and sizes (bytes) of a message's frames.

    Raises:
        KeyError: its header is not in the capture.
    """
    flow, position = int(messages.flow[index]), int(messages.position[index])
    conversation = conversations[flow // 2]
    stream, generation = (
        conversation.streams[flow % 2],
        conversation.framed[flow % 2].generation or Generation.G23,
    )
    try:
        header = read_header(stream, position, generation)
    except NotAHeaderError:
        header = None
    if header is None:
        raise KeyError(index)
    first = position + (8 if generation is Generation.G1 else 16) + 8 * len(header.lengths)
    return (
        stream,
        generation,
        [first, *(first + c for c in accumulate(header.lengths[:-1]))],
        list(header.lengths),
    )


def content(messages: Messages, index: int, conversations: Mapping[int, Conversation]) -> Any:
    """Decode a message's body.

    Raises:
        UndecodableError: the body is damaged.
        KeyError: the body is not in the capture.
    """
    flow, position, at = (int(a[index]) for a in (messages.flow, messages.position, messages.body_at))
    stream, framed = conversations[flow // 2].streams[flow % 2], conversations[flow // 2].framed[flow % 2]
    body = stream.read(position + at, int(messages.body_size[index]))
    if body is None:
        raise KeyError(index)
    if framed.generation is Generation.G1:  # the small header is between the lengths and the message
        small = 8 + 8 * int(messages.frames[index])
        body = decompress(body, stream.read(position + small, at - small))
    return unpack(body)
