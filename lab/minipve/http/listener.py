"""Accept connections, with limits on their number and on the time that a client may take.

aiohttp's own limits (``_LIMITS``) bound sizes. It has none for the number of connections, nor for a client
that stays silent or sends its head slowly: these are ours.

Our limits apply before authentication. They prevent that a client which keeps us waiting delays others.
A new client is silent: it costs a file descriptor and nothing else. When too many clients are silent, the
oldest is closed. The first byte takes a slot; the client becomes a `Connection`, whose states are a table.
When all slots are taken, the client that has kept us waiting longest loses its slot: first among clients that
never got an answer, then among the others. A new client waits only while every slot has a request at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from aiohttp import web

MAX_CONNECTIONS = 256
MAX_SILENT = 128  # connections without a first byte
MAX_QUEUED = 128  # connections that wait for a slot
MAX_AHEAD = 8  # pipelined requests in a connection
HEAD_TIMEOUT_S = 10.0  # limits the first byte, the TLS handshake, and the whole head of the first request
IDLE_TIMEOUT_S = 60.0  # limits the whole head of each later request, and reading the answer
_LIMITS: dict[str, Any] = {
    "max_line_size": 8190,
    "max_field_size": 4096,
    "max_headers": 64,
    "read_bufsize": 2**16,
    "lingering_time": 2.0,
    "auto_decompress": False,  # a small body cannot become a large one
    "access_log": None,
}


class ConnectionState(Enum):
    """What a client that has a slot, or had one, does or waits for."""

    HANDSHAKE = auto()
    FIRST_HEAD = auto()
    FIRST_REQUEST = auto()  # at work
    FIRST_DELAY = auto()  # an unauthenticated client sends a body, or waits for its refusal
    LATER_HEAD = auto()  # from here on the client has had an answer
    LATER_REQUEST = auto()
    LATER_DELAY = auto()
    CUT = auto()  # by us; the slot is free at once
    CLOSED = auto()


class ConnectionEvent(Enum):
    """What happens to a connection."""

    SECURED = auto()  # the handshake is done
    REQUEST = auto()  # a whole head has arrived
    DELAY = auto()
    DELAY_OVER = auto()
    ANSWER = auto()
    CUT = auto()
    LOST = auto()


_State, _Event = ConnectionState, ConnectionEvent
_LIVE = [state for state in _State if state not in (_State.CUT, _State.CLOSED)]
TRANSITIONS: dict[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (_State.HANDSHAKE, _Event.SECURED): _State.FIRST_HEAD,
    (_State.FIRST_HEAD, _Event.REQUEST): _State.FIRST_REQUEST,
    (_State.FIRST_REQUEST, _Event.DELAY): _State.FIRST_DELAY,
    (_State.FIRST_DELAY, _Event.DELAY_OVER): _State.FIRST_REQUEST,
    (_State.FIRST_REQUEST, _Event.ANSWER): _State.LATER_HEAD,
    (_State.LATER_HEAD, _Event.REQUEST): _State.LATER_REQUEST,
    (_State.LATER_REQUEST, _Event.DELAY): _State.LATER_DELAY,
    (_State.LATER_DELAY, _Event.DELAY_OVER): _State.LATER_REQUEST,
    (_State.LATER_REQUEST, _Event.ANSWER): _State.LATER_HEAD,
    **{(state, _Event.CUT): _State.CUT for state in _LIVE},
    **{(state, _Event.LOST): _State.CLOSED for state in _LIVE},
    # A request may be at work when its connection ends: what happens to it then changes nothing.
    **{(state, event): state for state in (_State.CUT, _State.CLOSED) for event in _Event},
}
"""Rule: `Connection.state` changes only in `Connection._move`, and only along this table."""

UNANSWERED = {_State.HANDSHAKE, _State.FIRST_HEAD, _State.FIRST_DELAY}
WAITING = {*UNANSWERED, _State.LATER_HEAD, _State.LATER_DELAY}
"""The states in which we wait for the client, which may lose its slot."""
DEADLINE_S = {_State.FIRST_HEAD: HEAD_TIMEOUT_S, _State.LATER_HEAD: IDLE_TIMEOUT_S}
"""State -> how long it may last. The handshake has a deadline of its own, and work on a request has none."""


class Connection(web.RequestHandler):
    """A client's connection. It is cut off after its deadline. ``on_wait`` is called when a wait starts."""

    __slots__ = ("_deadline", "_on_wait", "closed", "since", "state")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, on_wait: Callable[[], None]
    ) -> None:
        super().__init__(server, loop=loop, **_LIMITS)
        self.closed = loop.create_future()
        self.state = ConnectionState.HANDSHAKE
        self.since = loop.time()
        """When we began to wait for the client, or to work for it."""
        self._on_wait = on_wait
        self._deadline: asyncio.TimerHandle | None = None

    def _move(self, event: ConnectionEvent) -> None:
        """Change the state. Raises KeyError for an event that cannot happen in it."""
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if self.state is before:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        if seconds := DEADLINE_S.get(self.state):
            self._deadline = self._loop.call_later(seconds, self.cut)
        if (before in WAITING) != (self.state in WAITING):
            self.since = self._loop.time()
            if self.state in WAITING:
                self._on_wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request, now that the handshake is done."""
        super().connection_made(transport)
        self._move(ConnectionEvent.SECURED)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._move(ConnectionEvent.LOST)
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Cut off a client that sends many requests ahead, since they would fill our memory."""
        super().data_received(data)
        if len(self._messages) > MAX_AHEAD:
            self.cut()

    def begin(self) -> None:
        """Stop the deadline: the whole head of a request has arrived."""
        self._move(ConnectionEvent.REQUEST)

    def end(self) -> None:
        """Restart the deadline: the answer is sent, and another request may follow."""
        self._move(ConnectionEvent.ANSWER)

    @contextlib.contextmanager
    def yielding_slot(self) -> Iterator[None]:
        """Count as waiting while an unauthenticated client sends a body, or waits for its delayed refusal."""
        self._move(ConnectionEvent.DELAY)
        try:
            yield
        finally:
            self._move(ConnectionEvent.DELAY_OVER)

    def cut(self) -> None:
        """End the connection at once, without a closing handshake."""
        self._move(ConnectionEvent.CUT)
        if self.transport is not None:
            self.transport.abort()
        elif not self.closed.done():
            self.closed.cancel()  # the transport exists only after the handshake

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
            self._silent[client] = loop.call_later(HEAD_TIMEOUT_S, self._drop, client)
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
        active = [link for link in self._slots.values() if link.state is not ConnectionState.CUT]
        if len(active) < MAX_CONNECTIONS:
            return True
        waiting = [link for link in active if link.state in WAITING]
        if waiting:
            min(waiting, key=lambda link: (link.state not in UNANSWERED, link.since)).cut()
        return bool(waiting)

    async def _converse(self, connection: Connection, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        shaking = loop.create_task(
            loop.connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self.context,
                ssl_handshake_timeout=HEAD_TIMEOUT_S,
                ssl_shutdown_timeout=1.0,
            )
        )
        connection.closed.add_done_callback(lambda _: shaking.cancel())
        try:
            with contextlib.suppress(OSError):  # no TLS, or too slow
                await shaking
                await connection.closed
        except asyncio.CancelledError:  # cut off during the handshake
            if connection.state is not ConnectionState.CUT:
                raise
        finally:
            client.close()


def _has_ended(client: socket.socket) -> bool:
    try:
        return not client.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
