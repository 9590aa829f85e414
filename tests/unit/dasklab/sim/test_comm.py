"""Connections between simulated processes: establishing, order, closing, and what a dead process leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from dasklab.sim.cluster.comm import Fabric, Listener, SimComm, SimConnector, SimProcess
from dasklab.sim.costs import Costs
from dasklab.sim.kernel import Host, Kernel, VirtualLoop
from dasklab.sim.network import Network, Port
from dasklab.sim.network.fluid import Pipe
from distributed.comm.core import CommClosedError

RTT = 2e-4
ADDRESS = "server:1"


class Pair:
    """A client and a server machine. ``accepted`` are the ends of connections that the server has."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        ports = {name: Port(Pipe(1e9), Pipe(1e9)) for name in ("client", "server")}
        self.fabric = Fabric(self.kernel, Network(self.kernel, ports, RTT))
        self.accepted: list[SimComm] = []
        for name in ports:
            self.fabric.add(SimProcess(name, VirtualLoop.create(self.kernel, Host(self.kernel)), Costs()))

    def loop(self, name: str) -> VirtualLoop:
        return self.fabric.processes_by_name[name].loop

    def run(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        task = self.loop(name).create_task(coroutine)
        assert self.kernel.run_until(task.done)
        return task.result()

    def connect(self) -> tuple[SimComm, SimComm]:
        self.run("server", self.listen())
        comm = self.run("client", SimConnector(self.fabric).connect(ADDRESS))
        return comm, self.accepted[-1]

    async def listen(self) -> None:
        async def handle(comm: Any) -> None:
            self.accepted.append(comm)

        listener = Listener(self.fabric, ADDRESS, handle, deserialize=True)
        listener.on_connection = accept_without_handshake  # type: ignore[method-assign,assignment]
        await listener.start()


async def accept_without_handshake(comm: Any) -> None:
    pass


def test_connecting_takes_one_round_trip() -> None:
    pair = Pair()
    client, server = pair.connect()
    assert pair.kernel.now == pytest.approx(RTT)
    assert client.peer is server and server.peer is client
    assert (client.peer_address, server.local_address) == (f"sim://{ADDRESS}", f"sim://{ADDRESS}")


def test_connecting_to_an_address_without_listener_is_refused() -> None:
    pair = Pair()
    with pytest.raises(OSError, match="no process listens at server:1"):
        pair.run("client", SimConnector(pair.fabric).connect(ADDRESS))
    assert pair.kernel.now == pytest.approx(RTT)
    assert not pair.fabric.comms


def test_messages_arrive_in_order_and_then_the_close() -> None:
    pair = Pair()
    client, server = pair.connect()

    async def write() -> None:
        for number in range(3):
            await client.write({"number": number})
        await client.close()

    async def read() -> list[int]:
        numbers = []
        with pytest.raises(CommClosedError):
            while True:
                numbers.append((await server.read())["number"])
        return numbers

    pair.run("client", write())
    assert pair.run("server", read()) == [0, 1, 2]
    assert client.closed() and server.closed()


def test_writing_fails_once_the_peer_is_known_to_be_closed() -> None:
    pair = Pair()
    client, server = pair.connect()
    pair.run("client", client.close())
    pair.run("server", asyncio.sleep(RTT))
    with pytest.raises(CommClosedError):
        pair.run("server", server.write("message"))


def test_cancelling_a_read_closes_both_ends() -> None:
    pair = Pair()
    client, server = pair.connect()

    async def give_up() -> None:
        await asyncio.wait_for(client.read(), timeout=1.0)

    with pytest.raises(asyncio.TimeoutError):
        pair.run("client", give_up())
    pair.run("server", asyncio.sleep(RTT))
    assert client.closed() and server.closed()


def test_killed_process_leaves_a_closed_connection_and_its_unsent_messages_are_lost() -> None:
    pair = Pair()
    client, server = pair.connect()
    pair.run("client", client.write("sent"))
    pair.run("client", asyncio.sleep(RTT / 10))  # it has left, and is in flight
    client.channel.send(pair.kernel.now + 1.0, 100, lambda: server.receive([]))
    pair.fabric.kill("client")

    async def read() -> Any:
        message = await server.read()
        with pytest.raises(CommClosedError):
            await server.read()
        return message

    assert pair.run("server", read()) == "sent"
    assert pair.kernel.now < 1.0


def test_connection_over_a_cut_link_breaks_after_tcps_timeout_at_both_ends() -> None:
    pair = Pair()
    client, server = pair.connect()
    pair.fabric.cut("server", for_s=100.0, tcp_timeout_s=30.0)
    pair.run("client", asyncio.sleep(29.0))
    assert not client.closed() and not server.closed()
    pair.run("client", asyncio.sleep(2.0))
    assert client.closed() and server.closed()
