"""Dask's ``sim://`` addresses: messages are really packed and unpacked, and cross the modelled network.

An address is ``sim://machine:number``. Four classes implement Dask's interface for a transport:
``SimBackend`` (the scheme), ``SimConnector`` (outgoing connections), ``Listener`` (incoming connections) and
``SimComm`` (one end of a connection). ``Fabric`` is what all simulated processes share.

Establishing a connection takes a round trip:

    SimConnector.connect       ConnectionRequest ------------->  Listener.accept
    (waits)                                                      creates the other end
    returns its end            <------------- answer             starts Dask's handler

If no process listens at the address, the machine's kernel answers in its place and ``connect`` raises
OSError.
"""

# mypy: disable-error-code="misc,no-untyped-call"
from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend, backends
from distributed.protocol.core import dumps, loads

from dasklab.sim.cluster.mailbox import Mailbox
from dasklab.sim.costs import Costs, operations
from dasklab.sim.kernel import Kernel, VirtualLoop, resolve
from dasklab.sim.network import Channel, Network

SCHEME = "sim://"
FRAME_HEADER_BYTES = 8  # per frame: its length
ANSWER_BYTES = 30  # a message that only acknowledges another one


@dataclass(frozen=True)
class SimProcess:
    """A simulated process: its machine's name, its event loop, and what messages cost it."""

    name: str
    loop: VirtualLoop
    costs: Costs

    @property
    def pace(self) -> float:
        """Bytes per second at which it writes."""
        return 1 / self.costs.byte_s if self.costs.byte_s else math.inf


class Fabric:
    """What all simulated processes share: the network, who listens where, and the open connections.

    Attributes:
        listeners: by address without the scheme.
        comms: all open ends of connections, in the order in which they were opened.
        ops: by process, the operations in all messages that it wrote or read.
    """

    def __init__(self, kernel: Kernel, network: Network) -> None:
        self.kernel, self.network = kernel, network
        self.processes: dict[VirtualLoop, SimProcess] = {}
        self.processes_by_name: dict[str, SimProcess] = {}
        self.listeners: dict[str, Listener] = {}
        self.comms: dict[SimComm, None] = {}
        self.ops: dict[str, float] = {}
        self._ports = itertools.count(1)

    def add(self, process: SimProcess) -> None:
        """Register a process. A restarted one takes the place of its predecessor's name."""
        self.processes[process.loop] = self.processes_by_name[process.name] = process

    def kill(self, name: str) -> None:
        """End a process at once. Its kernel closes its connections and refuses pending requests."""
        process = self.processes_by_name[name]
        process.loop.close()
        for comm in [comm for comm in self.comms if comm.process is process]:
            comm.die()
        for listener in [listener for listener in self.listeners.values() if listener.process is process]:
            listener.die()

    def cut(self, machine: str, for_s: float, tcp_timeout_s: float) -> None:
        """Let no frame pass a machine's link. Connections that hear nothing for TCP's timeout break."""
        self.network.cut(machine, for_s)
        if for_s > tcp_timeout_s:
            for comm in [comm for comm in self.comms if comm.crosses(machine)]:
                self.kernel.at(self.kernel.now + tcp_timeout_s, comm.time_out)

    def current_process(self) -> SimProcess:
        """Return the process whose event loop is running."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return self.processes[loop]

    def charge(self, process: SimProcess, message: Any, nbytes: int) -> float:
        """Charge a process for reading or writing a message, and count the message's operations.

        Returns:
            The time between the cost of the operations and the cost of the bytes: when a message that is
            written starts to leave.
        """
        ops = operations(message)
        self.ops[process.name] = self.ops.get(process.name, 0) + ops
        process.loop.charge(ops * process.costs.op_s)
        starts_at = self.kernel.clock()
        process.loop.charge(nbytes * process.costs.byte_s)
        return starts_at

    def new_address(self, machine: str) -> str:
        """Return an unused address on a machine, without the scheme."""
        return f"{machine}:{next(self._ports)}"

    def register_scheme(self) -> None:
        """Make ``sim://`` known to Dask."""
        backends["sim"] = SimBackend(self)


class SimComm(Comm):
    """One end of a connection. Its ``peer`` is the other end, or None until the connection is established."""

    def __init__(self, fabric: Fabric, addresses: tuple[str, str], deserialize: bool) -> None:
        """Open an end in the running process; ``addresses`` are its own and the peer's, without scheme."""
        super().__init__(deserialize=deserialize)
        self._fabric, self.process = fabric, fabric.current_process()
        self._local_addr, self._peer_addr = (f"{SCHEME}{address}" for address in addresses)
        source, target = (address.partition(":")[0] for address in addresses)
        self.channel = Channel(fabric.network, source, target)
        self._mailbox = Mailbox(self.process.loop)
        self._closed = False
        self.peer: SimComm | None = None
        fabric.comms[self] = None

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    @property
    def same_host(self) -> bool:
        """False, or Dask would never compress."""
        return False

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        """Pack a message and send it. As with TCP, nothing waits for its arrival.

        Raises:
            CommClosedError: this end is closed, or knows that the peer is.
        """
        if self._closed or self._mailbox.closing:
            raise CommClosedError
        context = {"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options}
        frames = dumps(msg, serializers=serializers, on_error=on_error, context=context)
        nbytes = _nbytes(frames) + FRAME_HEADER_BYTES * (len(frames) + 1)
        starts_at = self._fabric.charge(self.process, msg, nbytes)
        peer = self.peer
        if peer is not None:
            self.channel.send(starts_at, nbytes, lambda: peer.receive(frames), self.process.pace)
        return nbytes

    def receive(self, frames: list[Any]) -> None:
        """Take a message that has reached this machine: the process sees it at its next turn."""
        self.process.loop.call_soon(self._mailbox.put, frames)

    def receive_end(self) -> None:
        """Take the peer's end of the connection, behind all its messages."""
        self.process.loop.call_soon(self._mailbox.close)

    async def read(self, deserializers: Any = None) -> Any:
        """Wait for a message and unpack it. Messages arrive in the order in which the peer wrote them.

        Cancelling a read aborts the connection.

        Raises:
            CommClosedError: the connection is closed at either end, and all messages before that were read.
        """
        if self._closed and self._mailbox.empty:
            raise CommClosedError
        try:
            frames = await self._mailbox.get()
        except CommClosedError:
            self._end()
            raise
        except BaseException:
            self.abort()
            raise
        message = loads(frames, deserialize=self.deserialize, deserializers=deserializers)
        self._fabric.charge(self.process, message, _nbytes(frames))
        return message

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Close this end and notify the peer. Closing twice does nothing."""
        if not self._closed:
            self._end()
            self._notify_peer()
            self._mailbox.close()

    def die(self) -> None:
        """Close this end because its process was killed: what has not left yet never leaves."""
        self._end()
        self.channel.drop()
        self._notify_peer()

    def time_out(self) -> None:
        """Close this end because TCP gave up on the peer. The peer is not notified: nothing gets through."""
        if not self._closed:
            self._end()
            self.channel.drop()
            self.process.loop.call_soon(self._mailbox.close)

    def crosses(self, machine: str) -> bool:
        """Return whether the connection uses a machine's link."""
        return machine in self.channel.ends and len(set(self.channel.ends)) > 1

    def closed(self) -> bool:
        return self._closed or self._mailbox.exhausted

    def _notify_peer(self) -> None:
        if self.peer is not None:
            self.channel.send(self._fabric.kernel.clock(), 0, self.peer.receive_end, self.process.pace)

    def _end(self) -> None:
        self._closed = True
        self._fabric.comms.pop(self, None)


class ConnectionRequest:
    """A request for a connection on its way to an address, and back with the answer."""

    def __init__(self, fabric: Fabric, caller: SimComm, address: str) -> None:
        self._fabric, self.caller, self._address = fabric, caller, address
        self.answered: asyncio.Future[None] = caller.process.loop.create_future()

    def send(self) -> None:
        """Send the request: it reaches the listener, or the kernel of a machine where no process listens."""
        self.caller.channel.send(self._fabric.kernel.clock(), 0, self._arrive)

    def answer(self) -> None:
        """Wake the caller. The request was successful if the caller has a peer by now."""
        self.caller.process.loop.call_soon(resolve, self.answered, None)

    def refuse(self) -> None:
        """Send the kernel's refusal back to the caller."""
        source, target = self.caller.channel.ends
        Channel(self._fabric.network, target, source).send(self._fabric.kernel.now, 0, self.answer)

    def _arrive(self) -> None:
        if listener := self._fabric.listeners.get(self._address):
            listener.accept(self)
        else:
            self.refuse()


class Listener(BaseListener):
    """Accepts connections at one address and hands them to Dask's handler."""

    prefix = SCHEME

    def __init__(
        self, fabric: Fabric, location: str, handle: Callable[[Comm], Any], deserialize: bool
    ) -> None:
        super().__init__()
        self._fabric, self._handle, self.deserialize = fabric, handle, deserialize
        machine, _, port = location.partition(":")
        self._location = location if port not in ("", "0") else fabric.new_address(machine)
        self._pending: dict[ConnectionRequest, None] = {}

    async def start(self) -> None:
        self.process = self._fabric.current_process()
        self._fabric.listeners[self._location] = self

    def stop(self) -> None:
        self._fabric.listeners.pop(self._location, None)

    def die(self) -> None:
        """Stop because the process was killed: its kernel refuses the requests that have no answer yet."""
        self.stop()
        for request in self._pending:
            request.refuse()

    def accept(self, request: ConnectionRequest) -> None:
        """Take a request that has reached this machine: the process sees it at its next turn."""
        self._pending[request] = None
        self.process.loop.call_soon(self._connect, request)

    def _connect(self, request: ConnectionRequest) -> None:
        """Create this end of the connection and answer; do nothing if the caller has given up."""
        del self._pending[request]
        caller = request.caller
        if caller.closed():
            return
        addresses = self._location, caller.local_address.removeprefix(SCHEME)
        comm = SimComm(self._fabric, addresses, self.deserialize)
        comm.peer, caller.peer = caller, comm
        comm.channel.send(self._fabric.kernel.clock(), 0, request.answer)
        self._task = asyncio.ensure_future(self._serve(comm))

    async def _serve(self, comm: SimComm) -> None:
        try:
            await self.on_connection(comm)
        except CommClosedError:
            return
        await self._handle(comm)

    @property
    def listen_address(self) -> str:
        return f"{SCHEME}{self._location}"

    contact_address = listen_address


class SimConnector(Connector):
    """Establishes connections from the running process."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    async def connect(self, address: str, deserialize: bool = True, **_: Any) -> Comm:
        """Connect to an address (without the scheme), which takes a round trip.

        Raises:
            OSError: no process listens there.
        """
        machine = self._fabric.current_process().name
        comm = SimComm(self._fabric, (self._fabric.new_address(machine), address), deserialize)
        request = ConnectionRequest(self._fabric, comm, address)
        request.send()
        try:
            await request.answered
            if comm.peer is None:
                raise OSError(f"no process listens at {address}")
        except BaseException:
            comm.abort()
            raise
        return comm


class SimBackend(Backend):
    """The scheme ``sim``, as Dask's registry of transports wants it."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def get_connector(self) -> Connector:
        return SimConnector(self._fabric)

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **_: Any) -> Listener:
        return Listener(self._fabric, loc, handle_comm, deserialize)

    def get_address_host(self, loc: str) -> str:
        return loc.partition(":")[0]

    def resolve_address(self, loc: str) -> str:
        return loc

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        machine, _, port = loc.partition(":")
        return machine, int(port)

    def get_local_address_for(self, loc: str) -> str:
        return f"{self._fabric.current_process().name}:0"


def _nbytes(frames: list[Any]) -> int:
    return sum(memoryview(frame).nbytes for frame in frames)
