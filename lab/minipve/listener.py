"""The door: how many connections there may be, and how long a client may take to say what it wants.

What is bounded here is bounded for everybody, before anybody has said who he is (figures: README).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any

from aiohttp import web

MAX_CONNECTIONS = 256
MAX_AHEAD = 8  # requests that wait in one connection
HEAD_S = 10.0  # for the TLS handshake, and then for the whole head of the first request
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
    """One client; it is cut off when it keeps us waiting."""

    __slots__ = ("_deadline", "answered", "gone", "idle_since")

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server, loop=loop, **_LIMITS)
        self.gone = loop.create_future()
        self.idle_since: float | None = None
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
        self.idle_since = None

    def end(self) -> None:
        """It is answered; the next may come."""
        if self.transport is not None:
            self.idle_since = self._loop.time()
            self._expect(IDLE_S)

    def cut(self) -> None:
        """End the connection at once, without waiting for what the client has to say to that."""
        if self.transport is not None:
            self.transport.abort()

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
    """Accepts connections for ``server``, never more than `MAX_CONNECTIONS` at a time: the rest wait in the
    kernel's queue, and who idles longest makes room.
    """

    def __init__(self, server: web.Server, accepting: socket.socket, context: ssl.SSLContext) -> None:
        accepting.setblocking(False)
        self.server, self.accepting, self.context = server, accepting, context
        self.open: dict[asyncio.Task[None], Connection] = {}

    async def serve(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            try:
                client, _ = await loop.sock_accept(self.accepting)
            except OSError:  # out of descriptors, or the client has gone again
                await asyncio.sleep(0.1)
                continue
            connection = Connection(self.server, loop)
            task = loop.create_task(self._converse(connection, client))
            self.open[task] = connection
            task.add_done_callback(self.open.pop)

    async def _room(self) -> None:
        while len(self.open) >= MAX_CONNECTIONS:
            idle = [c for c in self.open.values() if c.idle_since is not None]
            if idle:
                min(idle, key=lambda c: c.idle_since or 0.0).cut()
            await asyncio.wait(self.open, return_when=asyncio.FIRST_COMPLETED)

    async def _converse(self, connection: Connection, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # no TLS, or none in time
            await loop.connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self.context,
                ssl_handshake_timeout=HEAD_S,
                ssl_shutdown_timeout=1.0,
            )
            await connection.gone
