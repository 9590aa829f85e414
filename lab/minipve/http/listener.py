"""Accept connections, with limits on their number and on the time that a client may take.

aiohttp's own limits (``_LIMITS``) bound sizes. It has none for the number of connections, nor for a client
that stays silent or sends its head slowly: these are ours.

Our limits apply before authentication. They prevent that a client which keeps us waiting delays others.
A connection goes through these states:

    accepted --first byte--> handshake, head --whole request--> at work --answer--> idle --> ...
    (silent)                 (has a slot)                       (has a slot)        (has a slot)

A silent connection costs a file descriptor and nothing else. When there are too many, the oldest is closed.
The first byte takes a slot. When all slots are taken, the client that has kept us waiting longest loses its
slot: first among clients that never got an answer, then among idle ones. A new client waits only while every
slot has a request at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web

MAX_CONNECTIONS = 256
MAX_SILENT = 128  # connections without a first byte
MAX_QUEUED = 128  # connections that wait for a slot
MAX_AHEAD = 8  # pipelined requests in a connection
HEAD_S = 10.0  # for the first byte; for the TLS handshake; for the whole head of the first request
IDLE_S = 60.0  # for the whole head of each later request, and for reading the answer
_LIMITS: dict[str, Any] = {
    "max_line_size": 8190,
    "max_field_size": 4096,
    "max_headers": 64,
    "read_bufsize": 2**16,
    "lingering_time": 2.0,
    "auto_decompress": False,  # a small body cannot become a large one
    "access_log": None,
}


class Connection(web.RequestHandler):
    """A client's connection. It is cut off after its deadline. ``on_wait`` is called when a wait starts."""

    __slots__ = ("_deadline", "_on_wait", "closed", "is_cut", "waiting_since", "was_answered")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, on_wait: Callable[[], None]
    ) -> None:
        super().__init__(server, loop=loop, **_LIMITS)
        self.closed = loop.create_future()
        self.was_answered = self.is_cut = False
        self.waiting_since: float | None = loop.time()
        """When we started to wait for the client; None while its request is at work."""
        self._on_wait = on_wait
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request, now that the handshake is done."""
        super().connection_made(transport)
        self._expect(HEAD_S)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._relax()
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Cut off a client that sends many requests ahead, since they would fill our memory."""
        super().data_received(data)
        if len(self._messages) > MAX_AHEAD:
            self.cut()

    def begin(self) -> None:
        """Stop the deadline: the whole request has arrived."""
        self._relax()
        self.waiting_since = None

    def end(self) -> None:
        """Restart the deadline: the answer is sent, and another request may follow."""
        if self.transport is not None:
            self.was_answered = True
            self._wait()
            self._expect(IDLE_S)

    @contextlib.contextmanager
    def yielding_slot(self) -> Iterator[None]:
        """Count as waiting while an unauthenticated client sends a body, or waits for its delayed refusal."""
        self._wait()
        try:
            yield
        finally:
            self.waiting_since = None

    def cut(self) -> None:
        """End the connection at once, without a closing handshake."""
        self.is_cut = True
        if self.transport is not None:
            self.transport.abort()
        elif not self.closed.done():
            self.closed.cancel()  # the transport exists only after the handshake

    def _wait(self) -> None:
        self.waiting_since = self._loop.time()
        self._on_wait()

    def _expect(self, seconds: float) -> None:
        self._deadline = self._loop.call_later(seconds, self.cut)

    def _relax(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer malformed HTTP with 400 and no log entry. Log errors of our own and answer 500."""
        if status < 500:
            return _plain(status, "unable to parse request")
        self.log_exception("error while answering %s %s", request.method, request.path, exc_info=exc)
        return _plain(500, "internal error of the endpoint - see log/endpoint.log in its state folder")


def _plain(status: int, reason: str) -> web.Response:
    response = web.Response(status=status, reason=reason, text="", headers={"Server": "pve-api-daemon/3.0"})
    response.force_close()
    return response


class Listener:
    """Accepts connections for ``server`` and assigns the slots."""

    def __init__(self, server: web.Server, accepting: socket.socket, context: ssl.SSLContext) -> None:
        accepting.setblocking(False)
        self.server, self.accepting, self.context = server, accepting, context
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}  # the oldest first
        self._queue: deque[socket.socket] = deque()
        self._slots: dict[asyncio.Task[None], Connection] = {}

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(self.accepting)
            except OSError:  # no free file descriptor, or the client has disconnected
                await asyncio.sleep(0.1)
                continue
            if len(self._silent) >= MAX_SILENT:
                self._drop(next(iter(self._silent)))
            self._silent[client] = loop.call_later(HEAD_S, self._drop, client)
            loop.add_reader(client, self._on_first_byte, client)
            await asyncio.sleep(0)  # serve the others even during a flood of new clients

    def _drop(self, client: socket.socket) -> None:
        self._end_silence(client)
        client.close()

    def _end_silence(self, client: socket.socket) -> None:
        self._silent.pop(client).cancel()
        asyncio.get_running_loop().remove_reader(client)

    def _on_first_byte(self, client: socket.socket) -> None:
        """Queue a client whose first byte has arrived, unless it is the end of the connection."""
        self._end_silence(client)
        if _has_ended(client) or len(self._queue) >= MAX_QUEUED:
            client.close()
        else:
            self._queue.append(client)
            self._fill()

    def _fill(self) -> None:
        """Assign free slots to the clients in the queue."""
        while self._queue and self._has_slot():
            loop = asyncio.get_running_loop()
            connection = Connection(self.server, loop, self._fill)
            task = loop.create_task(self._converse(connection, self._queue.popleft()))
            self._slots[task] = connection
            task.add_done_callback(self._leave)

    def _leave(self, task: asyncio.Task[None]) -> None:
        del self._slots[task]
        self._fill()

    def _has_slot(self) -> bool:
        """Return whether a slot is free. If not, cut off the client that has kept us waiting longest."""
        active = [connection for connection in self._slots.values() if not connection.is_cut]
        if len(active) < MAX_CONNECTIONS:
            return True
        waiting = [(c.was_answered, c.waiting_since, c) for c in active if c.waiting_since is not None]
        if waiting:
            min(waiting, key=lambda row: row[:2])[2].cut()
        return bool(waiting)

    async def _converse(self, connection: Connection, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        shaking = loop.create_task(
            loop.connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self.context,
                ssl_handshake_timeout=HEAD_S,
                ssl_shutdown_timeout=1.0,
            )
        )
        connection.closed.add_done_callback(lambda _: shaking.cancel())
        try:
            with contextlib.suppress(OSError):  # no TLS, or too slow
                await shaking
                await connection.closed
        except asyncio.CancelledError:  # cut off during the handshake
            if not connection.is_cut:
                raise
        finally:
            client.close()


def _has_ended(client: socket.socket) -> bool:
    try:
        return not client.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
