"""The content of messages in a few bytes each: kind, op names, task keys, and what ``reports`` notes.

Other fields are decoded again when a table needs them: keeping all messages decoded would need much more
memory than the capture itself. Names of ops and keys of tasks are interned, because each occurs many times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from sys import intern
from typing import Any

from daskwire.decoder.dask.framing.messagepack import UndecodableError, name, text, unpack
from daskwire.decoder.dask.framing.reports import NOTES, Note
from daskwire.decoder.net.stream import Bytes


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
        op_note: (per op) see ``daskwire.decoder.dask.framing.reports``.
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
