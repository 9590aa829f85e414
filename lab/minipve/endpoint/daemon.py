"""The endpoint's process: set up the instance, serve HTTPS, and watch over the guests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys

from aiohttp import web

from minipve.base import atomic, process
from minipve.base.errors import MachineError, UserError
from minipve.base.paths import Paths
from minipve.config.rules.schema import LXC, QEMU
from minipve.endpoint import setup
from minipve.endpoint.server import HttpApi
from minipve.endpoint.watch import Watch
from minipve.guests.container import lifecycle as containers
from minipve.guests.vm import lifecycle as machines
from minipve.guests.vm import migration
from minipve.http import tls
from minipve.http.listener import Listener
from minipve.network import bridges, interfaces, links, namespace
from minipve.node import members
from minipve.node.node import Node

_LAST_ANSWERS_S = 8.0  # `minipve stop` kills the endpoint after ten seconds
log = logging.getLogger("minipve")


def run(paths: Paths, fd: int, ready_fd: int | None, management: str, delay_s: float) -> None:
    """Serve on the inherited socket ``fd`` until SIGTERM or SIGINT. Guests continue to run.

    Args:
        paths: the instance.
        fd: a listening socket.
        ready_fd: receives "ready" when the endpoint answers; None: nobody waits.
        management: the address of the first node in CIDR notation.
        delay_s: seconds before every 401.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    first = setup.load(paths)
    for node in first.nodes.values():
        atomic.sweep(node.cluster, node.storage.root, node.paths.seeds, node.paths.interfaces.parent)
    listener = socket.socket(fileno=fd)
    setup.set_up(first, management, setup.local_host(listener))
    for number, node in enumerate(first.visit()):
        _recover(node)
        _bring_up(node, members.management(management, number))
    for node in first.nodes.values():
        migration.recover(node)
    _join(first)
    with listener:
        asyncio.run(_serve(first, listener, ready_fd, delay_s))


def _recover(node: Node) -> None:
    """Remove unfinished guests of an earlier endpoint, and log unknown files."""
    for kind, unfinished in ((QEMU, machines.recover(node)), (LXC, containers.recover(node))):
        for vmid in unfinished:
            log.info("%s %d was unfinished when the endpoint ended: removed", kind.word, vmid)
        for file in node.store(kind).unknown_files():
            log.warning("%s is not a configuration of a %s: ignored", file, kind.word)


def _bring_up(node: Node, management: str) -> None:
    """Bring up the node's network as configured; if that cannot be read, only the management bridge."""
    try:
        bridges.reload(node.paths, node.name)
    except (UserError, MachineError) as failed:
        log.warning("bridges stay as they are: %s", str(failed).replace("\n ", ";"))
        bridges.create_missing(interfaces.default(management), node.name)


def _join(first: Node) -> None:
    """Connect the networks of the nodes."""
    further = [node for node in first.nodes.values() if node is not first]
    for node in further:
        network = namespace.find(node.paths)
        if network:
            links.connect_first_node(node.name, network.pid)
    for node in first.visit():
        if node is not first:
            links.connect_further_node()
    for node in further:
        if not node.is_up:
            process.run(links.switch(node.name, "down"))


async def _serve(node: Node, listener: socket.socket, ready_fd: int | None, delay_s: float) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    http_api = HttpApi(node, delay_s)
    server = web.Server(http_api.handle)
    accepting = asyncio.create_task(Listener(server, listener, tls.context(node.cluster)).serve())
    host, port = setup.local_host(listener), listener.getsockname()[1]
    setup.announce(node, host, port)
    watches = [Watch(member) for member in node.nodes.values()]
    for watch in watches:
        watch.start()
    log.info("serving %s, state in %s", setup.url(host, port), node.paths.state)
    if ready_fd is not None:
        with contextlib.suppress(BrokenPipeError):  # who started the endpoint was stopped meanwhile
            os.write(ready_fd, b"ready\n")
        os.close(ready_fd)
    await stopped.wait()
    accepting.cancel()
    for watch in watches:
        watch.stop()
    server.pre_shutdown()
    await server.shutdown(timeout=_LAST_ANSWERS_S)
    http_api.close()
    for member in node.nodes.values():
        member.tasks.settle(timeout_s=3)
    log.info("ended")
