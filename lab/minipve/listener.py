"""The door: how many connections there may be, and how long a client may take to say what it wants.

What is bounded here is bounded for everybody, before anybody has said who they are (figures: README). A
client that keeps the endpoint waiting never keeps another client waiting:

    accepted --first byte--> handshake, head --whole request--> at work --answer--> idle --> ...
    (silent)                 (has a place)                      (has a place)       (has a place)

A silent connection costs a descriptor and nothing else; the oldest one is closed when there are too many. A
place is taken with the first byte. When all are taken, the client that has kept the endpoint waiting longest
loses its own: first among those that were never answered, then among the idle ones. Only when a request is at
work in every place does a new client wait.
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
MAX_SILENT = 128  # connections of which no byte has come
MAX_QUEUED = 128  # connections that wait until a request is done
MAX_AHEAD = 8  # requests that wait in one connection
HEAD_S = 10.0  # for the first byte, for the TLS handshake, and then for the whole head of the first request
IDLE_S = 60.0  # for the whole head of each further request, and for taking the answer
_LIMITS: dict[str, Any] = {
    "max_line_size": 8190,
    "max_field_size": 4096,
    "max_headers": 64,
    "read_bufsize": 2**16,
    "lingering_time": 2.0,
    "auto_decompress": False,  # nobody gets a mebibyte for a kibibyte
    "access_log": None,
}


class Connection(web.RequestHandler):
    """One client; it is cut off when it keeps us waiting. ``on_wait`` is called when it begins to."""

    __slots__ = ("_deadline", "_on_wait", "gone", "is_cut", "waiting_since", "was_answered")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, on_wait: Callable[[], None]
    ) -> None:
        super().__init__(server, loop=loop, **_LIMITS)
        self.gone = loop.create_future()
        self.was_answered = self.is_cut = False
        self.waiting_since: float | None = loop.time()
        """Since when the client owes us something; None while its request is at work."""
        self._on_wait = on_wait
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done: now a request has to come."""
        super().connection_made(transport)
        self._expect(HEAD_S)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone, whoever ended it."""
        super().connection_lost(exc)
        self._relax()
        if not self.gone.done():
            self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Nobody's client sends many requests ahead of the answers; who does would fill our memory."""
        super().data_received(data)
        if len(self._messages) > MAX_AHEAD:
            self.cut()

    def begin(self) -> None:
        """A request is here."""
        self._relax()
        self.waiting_since = None

    def end(self) -> None:
        """It is answered; the next may come."""
        if self.transport is not None:
            self.was_answered = True
            self._wait()
            self._expect(IDLE_S)

    @contextlib.contextmanager
    def owing(self) -> Iterator[None]:
        """While a stranger sends a body, or is made to wait for a refusal, others have the better claim."""
        self._wait()
        try:
            yield
        finally:
            self.waiting_since = None

    def cut(self) -> None:
        """End the connection at once, without waiting for what the client has to say to that."""
        self.is_cut = True
        if self.transport is not None:
            self.transport.abort()
        elif not self.gone.done():
            self.gone.cancel()  # there is no transport before the end of the handshake

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
        """What is no HTTP gets 400 and no line in the log; an error of ours is logged, and told as such."""
        if status < 500:
            return _plain(status, "unable to parse request")
        self.log_exception("error while answering %s %s", request.method, request.path, exc_info=exc)
        return _plain(500, "internal error of the endpoint - see log/endpoint.log in its state folder")


def _plain(status: int, reason: str) -> web.Response:
    response = web.Response(status=status, reason=reason, text="", headers={"Server": "pve-api-daemon/3.0"})
    response.force_close()
    return response


class Listener:
    """Accepts connections for ``server``, and gives the places to those who use them."""

    def __init__(self, server: web.Server, accepting: socket.socket, context: ssl.SSLContext) -> None:
        accepting.setblocking(False)
        self.server, self.accepting, self.context = server, accepting, context
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}  # the oldest first
        self._queue: deque[socket.socket] = deque()
        self._places: dict[asyncio.Task[None], Connection] = {}

    async def serve(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(self.accepting)
            except OSError:  # out of descriptors, or the client has gone again
                await asyncio.sleep(0.1)
                continue
            if len(self._silent) >= MAX_SILENT:
                self._drop(next(iter(self._silent)))
            self._silent[client] = loop.call_later(HEAD_S, self._drop, client)
            loop.add_reader(client, self._spoke, client)
            await asyncio.sleep(0)  # a flood of new clients must not keep the others from being served

    def _drop(self, client: socket.socket) -> None:
        """Close a connection of which no byte has come."""
        self._hear(client)
        client.close()

    def _hear(self, client: socket.socket) -> None:
        self._silent.pop(client).cancel()
        asyncio.get_running_loop().remove_reader(client)

    def _spoke(self, client: socket.socket) -> None:
        """The first byte of a client has come, or its end."""
        self._hear(client)
        if _has_ended(client) or len(self._queue) >= MAX_QUEUED:
            client.close()
        else:
            self._queue.append(client)
            self._fill()

    def _fill(self) -> None:
        """Give places to the clients in the queue, as far as there are any."""
        while self._queue and self._has_room():
            loop = asyncio.get_running_loop()
            connection = Connection(self.server, loop, self._fill)
            task = loop.create_task(self._converse(connection, self._queue.popleft()))
            self._places[task] = connection
            task.add_done_callback(self._leave)

    def _leave(self, task: asyncio.Task[None]) -> None:
        del self._places[task]
        self._fill()

    def _has_room(self) -> bool:
        """Whether there is a place, made if need be by cutting off who keeps us waiting longest."""
        here = [connection for connection in self._places.values() if not connection.is_cut]
        if len(here) < MAX_CONNECTIONS:
            return True
        waiting = [(c.was_answered, c.waiting_since, c) for c in here if c.waiting_since is not None]
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
        connection.gone.add_done_callback(lambda _: shaking.cancel())
        try:
            with contextlib.suppress(OSError):  # no TLS, or none in time
                await shaking
                await connection.gone
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
