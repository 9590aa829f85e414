"""The endpoint's own process: an instance made ready, its HTTPS server, a watch over its machines."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys

from aiohttp import web

from minipve import atomic, cluster, instance, process, tls
from minipve.config.kinds import LXC, QEMU
from minipve.container import lifecycle as containers
from minipve.listener import Listener
from minipve.network import bridges, cables, interfaces, namespace
from minipve.node import Node
from minipve.paths import Paths
from minipve.process import MachineError
from minipve.server import HttpApi
from minipve.user_error import UserError
from minipve.vm import lifecycle as machines
from minipve.watch import Watch

_LAST_ANSWERS_S = 8.0  # after ten seconds the endpoint is killed
log = logging.getLogger("minipve")


def run(paths: Paths, fd: int, ready_fd: int | None, management: str, delay_s: float) -> None:
    """Serve on the inherited socket ``fd`` until SIGTERM or SIGINT; running machines are left alone.

    Every 401 waits ``delay_s`` first. ``ready_fd`` is told when the endpoint answers.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    first = instance.load(paths)
    for node in first.nodes.values():
        atomic.sweep(node.cluster, node.storage.root, node.paths.seeds, node.paths.interfaces.parent)
    instance.set_up(first, management)
    for number, node in enumerate(first.visit()):
        _recover(node)
        _bring_up(node, cluster.management(management, number))
    _join(first)
    with socket.socket(fileno=fd) as listener:
        asyncio.run(_serve(first, listener, ready_fd, delay_s))


def _recover(node: Node) -> None:
    """Remove what an earlier endpoint left half-made; name what is no guest's."""
    for kind, half in ((QEMU, machines.recover(node)), (LXC, containers.recover(node))):
        for vmid in half:
            log.info("%s %d was half-made when the endpoint ended: removed", kind.word, vmid)
        for stranger in node.store(kind).unknown_files():
            log.warning("%s is no configuration of a %s: left alone", stranger, kind.word)


def _bring_up(node: Node, management: str) -> None:
    """The node's network as it is configured; where that cannot be read, its management bridge alone."""
    try:
        bridges.reload(node.paths, node.name)
    except (UserError, MachineError) as failed:
        log.warning("bridges stay as they are: %s", str(failed).replace("\n ", ";"))
        bridges.create_missing(interfaces.default(management), node.name)


def _join(first: Node) -> None:
    """Lay the cables between the nodes."""
    further = [node for node in first.nodes.values() if node is not first]
    for node in further:
        held = namespace.find(node.paths)
        if held:
            cables.connect_first_node(node.name, held.pid)
    for node in first.visit():
        if node is not first:
            cables.connect_further_node()
    for node in further:
        if not node.is_up:
            process.run(cables.switch(node.name, "down"))


async def _serve(node: Node, listener: socket.socket, ready_fd: int | None, delay_s: float) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    front = HttpApi(node, delay_s)
    server = web.Server(front.handle)
    door = asyncio.create_task(Listener(server, listener, tls.context(node.cluster)).serve())
    port = listener.getsockname()[1]
    instance.announce(node, port)
    watches = [Watch(each) for each in node.nodes.values()]
    for watch in watches:
        watch.start()
    log.info("serving https://127.0.0.1:%d, state in %s", port, node.paths.state)
    if ready_fd is not None:
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)
    await ended.wait()
    door.cancel()
    for watch in watches:
        watch.stop()
    server.pre_shutdown()
    await server.shutdown(timeout=_LAST_ANSWERS_S)
    front.close()
    for each in node.nodes.values():
        each.tasks.settle(timeout_s=3)
    log.info("ended")
