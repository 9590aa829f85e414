"""Dask's ``sim://`` addresses: messages are really packed and unpacked, and cross the modelled network.

An address is ``sim://machine:number``.
"""

# mypy: disable-error-code="misc,no-untyped-call"
from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend, backends
from distributed.protocol.core import dumps, loads

from dasklab.sim.costs import Costs, operations
from dasklab.sim.kernel import Kernel, VirtualLoop, set_unless_done
from dasklab.sim.network import Channel, Network

HEADER_BYTES = 8  # per frame: its length
ANSWER_BYTES = 30  # of a message that says no more than that another came
Closed = None


@dataclass(frozen=True)
class Process:
    """A simulated process: its loop, on which machine it runs, and what a message costs it."""

    name: str
    loop: VirtualLoop
    costs: Costs

    @property
    def pace(self) -> float:
        """Bytes per second that it writes."""
        return 1 / self.costs.byte_s if self.costs.byte_s else math.inf


class World:
    """All processes, and who listens where."""

    def __init__(self, kernel: Kernel, network: Network) -> None:
        self.kernel, self.network = kernel, network
        self.processes: dict[VirtualLoop, Process] = {}
        self.processes_by_name: dict[str, Process] = {}
        self.listeners: dict[str, Listener] = {}
        self.comms: dict[SimComm, None] = {}  # those that are open
        self.numbers = itertools.count(1)
        self.ops: dict[str, float] = {}

    def add(self, process: Process) -> None:
        """A process more."""
        self.processes[process.loop] = self.processes_by_name[process.name] = process

    def kill(self, name: str) -> None:
        """End a process at once; its kernel tells all that it was connected to."""
        process = self.processes_by_name[name]
        process.loop.close()
        for comm in [comm for comm in self.comms if comm.process is process]:
            comm.vanish()
        for listener in [one for one in self.listeners.values() if one.process is process]:
            listener.vanish()

    def cut(self, machine: str, for_s: float, patience_s: float) -> None:
        """Let no frame pass a machine's link; connections that hear nothing for too long are broken."""
        self.network.cut(machine, for_s)
        if for_s > patience_s:
            for comm in [comm for comm in self.comms if comm.crosses(machine)]:
                self.kernel.at(self.kernel.now + patience_s, comm.lose)

    def refuse(self, caller: SimComm, answer: Callable[[], None]) -> None:
        """The kernel of a machine on which nobody listens says so."""
        here, there = caller.channel.ends
        Channel(self.network, there, here).send(self.kernel.now, 0, answer)

    def here(self) -> Process:
        """Whose turn it is."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return self.processes[loop]

    def charge(self, process: Process, message: Any, nbytes: int) -> float:
        """Charge the running process for a message, and count it; when it came to the message's bytes."""
        ops = operations(message)
        self.ops[process.name] = self.ops.get(process.name, 0) + ops
        process.loop.charge(ops * process.costs.op_s)
        begun = self.kernel.clock()
        process.loop.charge(nbytes * process.costs.byte_s)
        return begun

    def address(self, machine: str) -> str:
        """One that nobody has."""
        return f"{machine}:{next(self.numbers)}"

    def register(self) -> None:
        """Make Dask know the scheme."""
        backends["sim"] = SimBackend(self)


class SimComm(Comm):
    """One end of a connection."""

    def __init__(self, world: World, ends: tuple[str, str], deserialize: bool) -> None:
        super().__init__(deserialize=deserialize)
        self._world, self.process = world, world.here()
        self._local_addr, self._peer_addr = (f"sim://{end}" for end in ends)
        here, there = (end.partition(":")[0] for end in ends)
        self.channel = Channel(world.network, here, there)
        self._arrived: deque[list[Any] | None] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._closed = False
        self.peer: SimComm | None = None
        world.comms[self] = None

    @property
    def local_address(self) -> str:
        """Where this end is."""
        return self._local_addr

    @property
    def peer_address(self) -> str:
        """Where the other is."""
        return self._peer_addr

    @property
    def same_host(self) -> bool:
        """Never: then Dask would not compress."""
        return False

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        """Pack a message and let it go; as with TCP nobody waits until it has arrived."""
        if self._closed or (self._arrived and self._arrived[-1] is Closed):
            raise CommClosedError
        about = {"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options}
        frames = dumps(msg, serializers=serializers, on_error=on_error, context=about)
        nbytes = sum(memoryview(frame).nbytes for frame in frames) + HEADER_BYTES * (len(frames) + 1)
        begun = self._world.charge(self.process, msg, nbytes)
        self._send(nbytes, frames, begun)
        return nbytes

    def _send(self, nbytes: int, frames: list[Any] | None, begun: float) -> None:
        """Let go what is written from that moment on."""
        peer = self.peer
        if peer is None:  # nobody has answered yet
            return
        self.channel.send(begun, nbytes, lambda: peer.loop_soon(frames), self.process.pace)

    def loop_soon(self, frames: list[Any] | None) -> None:
        """A message or the end has reached this machine: its process sees it at its next turn."""
        self.process.loop.call_soon(self._arrive, frames)

    def _arrive(self, frames: list[Any] | None) -> None:
        self._arrived.append(frames)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def read(self, deserializers: Any = None) -> Any:
        """Wait for a message and unpack it."""
        while not self._arrived:
            if self._closed:
                raise CommClosedError
            self._reader = self.process.loop.create_future()
            try:
                await self._reader
            except BaseException:  # as with TCP: nobody knows what was read
                self.abort()
                raise
        frames = self._arrived[0]
        if frames is Closed:
            self._end()
            raise CommClosedError
        self._arrived.popleft()
        message = loads(frames, deserialize=self.deserialize, deserializers=deserializers)
        self._world.charge(self.process, message, sum(memoryview(frame).nbytes for frame in frames))
        return message

    async def close(self) -> None:
        """Tell the other end."""
        self.abort()

    def abort(self) -> None:
        """Tell the other end."""
        if not self._closed:
            self._end()
            self._send(0, Closed, self._world.kernel.clock())
            self._arrive(Closed)

    def vanish(self) -> None:
        """Its process is gone: what has not left does not leave any more."""
        self._end()
        self.channel.drop()
        self._send(0, Closed, self._world.kernel.clock())

    def lose(self) -> None:
        """Its kernel has given up on the other end, which is not told: nothing gets through."""
        if not self._closed:
            self._end()
            self.channel.drop()
            self.process.loop.call_soon(self._arrive, Closed)

    def crosses(self, machine: str) -> bool:
        """Does it cross a machine's link?"""
        return machine in self.channel.ends and len(set(self.channel.ends)) > 1

    def _end(self) -> None:
        self._closed = True
        self._world.comms.pop(self, None)

    def closed(self) -> bool:
        """Is nothing more to come?"""
        return self._closed or (bool(self._arrived) and self._arrived[0] is Closed)


class Listener(BaseListener):
    """Takes connections."""

    prefix = "sim://"

    def __init__(self, world: World, location: str, handle: Callable[[Comm], Any], deserialize: bool) -> None:
        super().__init__()
        self._world, self._handle, self.deserialize = world, handle, deserialize
        machine, _, number = location.partition(":")
        self._location = location if number not in ("", "0") else world.address(machine)
        self._asked: dict[SimComm, Callable[[], None]] = {}

    async def start(self) -> None:
        """Be found from now on."""
        self.process = self._world.here()
        self._world.listeners[self._location] = self

    def stop(self) -> None:
        """Be found no more."""
        self._world.listeners.pop(self._location, None)

    def vanish(self) -> None:
        """Its process is gone: who asked for a connection and has no answer yet is refused."""
        self.stop()
        for caller, answer in self._asked.items():
            self._world.refuse(caller, answer)

    def accept(self, caller: SimComm, answer: Callable[[], None]) -> None:
        """A connection was asked for and the asking has arrived: make the other end, answer."""

        self._asked[caller] = answer

        def connected() -> None:
            del self._asked[caller]
            if caller.closed():
                return
            comm = SimComm(self._world, (self._location, caller.local_address[6:]), self.deserialize)
            comm.peer, caller.peer = caller, comm
            comm.channel.send(self._world.kernel.clock(), 0, answer)
            self._task = asyncio.ensure_future(self._serve(comm))

        self.process.loop.call_soon(connected)

    async def _serve(self, comm: SimComm) -> None:
        try:
            await self.on_connection(comm)
        except CommClosedError:
            return
        await self._handle(comm)

    @property
    def listen_address(self) -> str:
        """Where it listens."""
        return f"sim://{self._location}"

    contact_address = listen_address


class SimConnector(Connector):
    """Asks for connections: a round trip."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def connect(self, address: str, deserialize: bool = True, **_: Any) -> Comm:
        """A connection to who listens there."""
        world, here = self._world, self._world.here()
        comm = SimComm(world, (world.address(here.name), address), deserialize)
        answered = here.loop.create_future()

        def answer() -> None:
            here.loop.call_soon(set_unless_done, answered, None)

        def asked() -> None:
            if listener := world.listeners.get(address):
                listener.accept(comm, answer)
            else:
                world.refuse(comm, answer)

        comm.channel.send(world.kernel.clock(), 0, asked)
        try:
            await answered
            if comm.peer is None:
                raise OSError(f"nobody listens at {address}")
        except BaseException:
            comm.abort()
            raise
        return comm


class SimBackend(Backend):
    """The scheme as Dask asks for it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get_connector(self) -> Connector:
        """Who makes connections."""
        return SimConnector(self._world)

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **_: Any) -> Listener:
        """Who takes them."""
        return Listener(self._world, loc, handle_comm, deserialize)

    def get_address_host(self, loc: str) -> str:
        """The machine."""
        return loc.partition(":")[0]

    def resolve_address(self, loc: str) -> str:
        """It is resolved already."""
        return loc

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        """The machine and the number."""
        machine, _, number = loc.partition(":")
        return machine, int(number)

    def get_local_address_for(self, loc: str) -> str:
        """Of the machine that runs."""
        return f"{self._world.here().name}:0"
