"""The content of messages in a few bytes each: kind, op names, keys, and what the table of tasks needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from sys import intern
from typing import Any, NamedTuple

import lz4.block
import msgpack

from daskwire.decoder.net.tcp import Bytes

MAX_MESSAGE_BYTES = 1 << 28  # decompressed


def lz4_block(data: bytes) -> bytes:
    """Decompress the output of ``lz4.block.compress``, which begins with 4 bytes of size. G1 has it.

    Raises:
        UndecodableError: the data is damaged or too large.
    """
    if int.from_bytes(data[:4], "little") > min(255 * len(data), MAX_MESSAGE_BYTES):
        raise UndecodableError("lz4: impossible size")
    try:
        return bytes(lz4.block.decompress(data))
    except (ValueError, lz4.block.LZ4BlockError) as error:
        raise UndecodableError(f"lz4: {error}") from error


# Decode untrusted MessagePack with bounded memory. Nothing is unpickled.
#
# Dask's options are used: raw=False, keys of any type, tuples instead of lists (task keys are tuples and
# may be
# map keys). Two checks come before memory is allocated. A forged array header can claim millions of items:
# MessagePack's `skip` walks the bytes without building objects and rejects headers that claim more than the
# message contains. And an empty map is one byte that becomes 72, so the values of a large message are
# counted
# first.

SMALL = 2048  # bytes; in a smaller message a forged header cannot claim a relevant amount of memory
MAX_VALUES = 1 << 21  # at most 80 bytes each: 170 MB in addition to the message itself
MAX_NAME = 4096  # characters of a task key or type that is not plain text
_unpack = partial(
    msgpack.unpackb, raw=False, strict_map_key=False, use_list=False, unicode_errors="backslashreplace"
)
BAD = (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError, OverflowError)
FIXED = [1] * 256  # size of a value by its first byte; 0 if a length follows
FIXED[0xA0:0xC0] = range(1, 33)  # short strings
FIXED[0xC4:0xCA] = [0] * 6  # binary, extensions
FIXED[0xCA:0xD4] = (5, 9, 2, 3, 5, 9, 2, 3, 5, 9)  # numbers
FIXED[0xD4:0xD9] = (3, 4, 6, 10, 18)  # extensions of fixed size
FIXED[0xD9:0xDC] = [0] * 3  # strings
FIXED[0xDC:0xE0] = (3, 5, 3, 5)  # headers of arrays and maps
LENGTH = {  # first byte: width of the length, and the bytes between it and the data
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
PLAIN = frozenset({str, int, float, bool, type(None)})


class UndecodableError(ValueError):
    """The data is not exactly one MessagePack object, or exceeds a limit."""


def unpack(data: Bytes) -> Any:
    """Decode one object.

    Raises:
        UndecodableError: ``data`` is not exactly one object, or it exceeds a limit.
    """
    try:
        if len(data) > SMALL:
            _check(data)
        return _unpack(data)
    except BAD as error:
        raise UndecodableError(str(error) or type(error).__name__) from None


def _check(data: Bytes) -> None:
    checker = msgpack.Unpacker(max_buffer_size=len(data), strict_map_key=False)
    checker.feed(data)
    checker.skip()
    if len(data) > MAX_VALUES and not _has_at_most(data, MAX_VALUES):  # a value is at least one byte
        raise ValueError(f"more than {MAX_VALUES} values")


def _has_at_most(data: Bytes, limit: int) -> bool:
    """Return whether valid MessagePack contains at most ``limit`` values, items of containers included."""
    at, end = 0, len(data)
    for _ in range(limit):
        if at >= end:
            return True
        first = data[at]
        if fixed := FIXED[first]:
            at += fixed
        else:
            width, extra = LENGTH[first]
            at += 1 + width + extra + int.from_bytes(data[at + 1 : at + 1 + width], "big")
    return at >= end


def name(value: Any) -> Any:
    """Convert a task key or similar for storage.

    Text and tuples of plain values are returned unchanged. Anything else becomes text of limited length: it
    may be large, or nested too deeply for Python.
    """
    if type(value) in PLAIN or (type(value) is tuple and PLAIN.issuperset(map(type, value))):
        return value
    return text(value)


def number(value: Any) -> int | float | None:
    """Return the value if it is a finite number, else None."""
    return value if type(value) is int or (type(value) is float and math.isfinite(value)) else None


def text(value: Any) -> str:
    """Convert any decoded value to text of limited length."""
    if type(value) is str:
        return value
    try:
        result = str(value)
    except RecursionError:
        return "(nested too deep)"
    return result if len(result) <= MAX_NAME else result[: MAX_NAME - 3] + "..."


# What the table of tasks needs of an op, a few values each. It is kept when a message is first decoded.
#
# Decoding these messages again would cost as much as all of the first pass, since most messages of a
# cluster
# with small tasks are reports about tasks.

LATEST_S = 1e11  # seconds since 1970; larger values are not times


class Report(NamedTuple):
    """A worker's report that it is done with a task.

    Attributes:
        from_worker: only a worker sends these fields; a scheduler forwards task-erred without them.
        thread: identifier of the thread, None without.
        start_s: when the task began to compute, seconds since 1970 by the worker's clock; None without.
        stop_s: when it stopped.
        compute_s: time computing; None without.
        transfer_s: time transferring inputs.
        disk_s: time reading from and writing to disk.
        nbytes: size of the result in memory.
        type: type of the result.
    """

    from_worker: bool
    thread: Any
    start_s: float | None
    stop_s: float | None
    compute_s: float | None
    transfer_s: float
    disk_s: float
    nbytes: int | float | None
    type: str | None


Note = Report | tuple[Any, ...]


def _report(fields: dict[Any, Any]) -> Report:
    start = stop = compute = None
    transfer = disk = 0.0
    action: Any
    begin: Any
    end: Any
    startstops = fields.get("startstops")
    for step in startstops if type(startstops) is tuple else ():
        if type(step) is dict:  # since G2
            action, begin, end = step.get("action"), step.get("start"), step.get("stop")
        elif type(step) is tuple and len(step) == 3:
            action, begin, end = step
        else:
            continue
        if not (_is_time(begin) and _is_time(end)):
            continue
        if action == "compute":
            start = float(begin) if start is None else start
            stop = float(end)
            compute = (compute or 0.0) + (end - begin)
        elif action == "transfer":
            transfer += end - begin
        elif text(action).startswith("disk"):
            disk += end - begin
    thread, kind = fields.get("thread"), fields.get("typename")
    return Report(
        "thread" in fields,
        None if thread is None else name(thread),
        start,
        stop,
        compute,
        transfer,
        disk,
        number(fields.get("nbytes")),
        None if kind is None else intern(text(kind)),
    )


def _is_time(value: Any) -> bool:
    """Return whether a value is a time in seconds since 1970. Infinity and NaN are none."""
    return (type(value) is float or type(value) is int) and 0 <= value < LATEST_S


def _steal_response(fields: dict[Any, Any]) -> Report | None:
    """Stealing succeeds, and ends the task on its worker, only in some states."""
    return _report(fields) if fields.get("state") in ("ready", "constrained", "waiting") else None


def _cancelled(fields: dict[Any, Any]) -> tuple[Any, ...]:
    keys = fields.get("keys", (fields.get("key"),))
    return tuple(map(text, keys)) if isinstance(keys, tuple) else ()


NOTES: dict[str, Callable[[dict[Any, Any]], Note | None]] = {
    "task-finished": _report,
    "task-erred": _report,
    "reschedule": _report,
    "steal-response": _steal_response,
    "free-keys": _cancelled,  # since 2022
    "cancel-compute": _cancelled,  # in 2021 and 2022
    "release-task": _cancelled,  # before 2021
}
"""Op -> what is kept of its fields: a report, or the keys of cancelled tasks."""


# The content of messages in a few bytes each: kind, op names, task keys, and what `reports` notes.
#
# Other fields are decoded again when a table needs them: keeping all messages decoded would need much more
# memory than the capture itself. Names of ops and keys of tasks are interned, because each occurs many
# times.


class MessageKind(IntEnum):
    """The kind of a message. CUT: its body is not in the capture. UNDECODED: the body cannot be decoded."""

    HANDSHAKE = 0
    REQUEST = 1
    REPLY = 2
    BATCH = 3
    TEXT = 4
    CUT = 5
    UNDECODED = 6


@dataclass
class Contents:
    """Content of all messages of one flow, in order.

    Attributes:
        kind: (per message) its MessageKind.
        op_message: (per op) index of its message in this flow.
        op_name: (per op) its name.
        op_key: (per op) its task key, None without.
        op_note: (per op) see ``Report``.
        awaiting: indices of the messages whose sender waits for a reply.
    """

    kind: list[int] = field(default_factory=list)
    op_message: list[int] = field(default_factory=list)
    op_name: list[str] = field(default_factory=list)
    op_key: list[Any] = field(default_factory=list)
    op_note: list[Note | None] = field(default_factory=list)
    awaiting: list[int] = field(default_factory=list)

    def add_missing(self) -> None:
        """Append a message whose body is not in the capture."""
        self.kind.append(MessageKind.CUT)

    def add(self, body: Bytes) -> None:
        """Append a message by its body."""
        try:
            content = unpack(body)
        except UndecodableError:
            self.kind.append(MessageKind.UNDECODED)
        else:
            self._classify(content)

    def _classify(self, content: Any) -> None:
        if type(content) is tuple and content and all(type(d) is dict and "op" in d for d in content):
            self._batch(content)
        elif type(content) is dict:
            self._single(content)
        else:
            self.kind.append(MessageKind.TEXT if type(content) is str else MessageKind.REPLY)

    def _batch(self, batch: tuple[dict[Any, Any], ...]) -> None:
        index = len(self.kind)
        self.kind.append(MessageKind.BATCH)
        for item in batch:
            op, key = item["op"], item.get("key")
            op = intern(op if type(op) is str else text(op))
            self.op_message.append(index)
            self.op_name.append(op)
            self.op_key.append(intern(key) if type(key) is str else name(key))
            self.op_note.append(NOTES[op](item) if op in NOTES else None)

    def _single(self, content: dict[Any, Any]) -> None:
        op = content.get("op")
        if type(op) is str:
            op = intern(op)
            self.op_message.append(len(self.kind))
            self.op_name.append(op)
            self.op_key.append(name(content.get("key")))
            # A registration has ``reply: False``; the first message of the stream answers it nevertheless.
            if content.get("reply", True) is not False or op == "register-worker":
                self.awaiting.append(len(self.kind))
            self.op_note.append(NOTES[op](content) if op in NOTES else None)
            self.kind.append(MessageKind.REQUEST)
        elif "pickle-protocol" in content and "python" in content:
            self.kind.append(MessageKind.HANDSHAKE)
        else:
            self.kind.append(MessageKind.REPLY)
