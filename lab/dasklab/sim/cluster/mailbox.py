"""The receiving half of a simulated connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from distributed.comm.core import CommClosedError

_CLOSED = object()


class Mailbox:
    """An ordered queue of messages for one end of a connection, with a single reader.

    Order: messages come out as they were put in. Closing takes its place in the queue, so the reader still
    gets the messages that came before it; then, and ever after, it gets CommClosedError.

    Cancellation: a reader that is cancelled while it waits takes no message out. Its caller must treat the
    connection as broken, because with TCP nobody would know how much of a message had been read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._entries: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is neither a message nor the end to read."""
        return not self._entries

    @property
    def closing(self) -> bool:
        """Whether the end has been put in. Messages before it may still be unread."""
        return bool(self._entries) and self._entries[-1] is _CLOSED

    @property
    def exhausted(self) -> bool:
        """Whether the end is the next thing to read."""
        return bool(self._entries) and self._entries[0] is _CLOSED

    def put(self, message: Any) -> None:
        """Append a message and wake the reader."""
        self._entries.append(message)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def close(self) -> None:
        """Append the end and wake the reader. Messages put in later are never read."""
        self.put(_CLOSED)

    async def get(self) -> Any:
        """Wait for a message and take it out.

        Raises:
            CommClosedError: the mailbox is exhausted.
        """
        while not self._entries:
            self._reader = self._loop.create_future()
            await self._reader
        if self.exhausted:
            raise CommClosedError
        return self._entries.popleft()
