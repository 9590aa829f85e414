"""Who is who: endpoints recognised by what they say, or named by the user.

A worker registers with the address it listens on; a client registers as a client; whoever receives a
registration or a worker's heartbeat is the scheduler; the requester of data says its address. Several nodes
may share one IP address (a cluster on one machine), so names belong to endpoints, and to an IP address only
when a single node was seen there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.wire.dask.dialogues import Dialogue
from lab.wire.dask.messagepack import UndecodableError
from lab.wire.dask.messages import Messages, content
from lab.wire.net.connections import Connections

SPEAKING = frozenset(
    {"register-worker", "heartbeat_worker", "register-client", "heartbeat-client", "get_data", "identity"}
)
Endpoint = tuple[str, int]


@dataclass
class Nodes:
    """Names of endpoints. ``listening`` maps the address that a node serves on to its name."""

    given: Mapping[str, str]
    endpoint: dict[Endpoint, str] = field(default_factory=dict)
    listening: dict[Endpoint, str] = field(default_factory=dict)
    by_address: dict[str, set[str]] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)  # of distributed, as workers and clients said

    def name(self, address: str, port: int) -> str:
        """The node behind an endpoint; its IP address when nothing more is known."""
        for key in (f"{address}:{port}", address):
            if key in self.given:
                return self.given[key]
        known = self.endpoint.get((address, port)) or self.listening.get((address, port))
        if known:
            return known
        here = self.by_address.get(address, set())
        return next(iter(here)) if len(here) == 1 else address


def recognise_nodes(
    messages: Messages, dialogues: Mapping[int, Dialogue], connections: Connections, given: Mapping[str, str]
) -> Nodes:
    """Learn names from one message of each telling kind per connection."""
    nodes = Nodes(given)
    workers: dict[Endpoint, str | None] = {}
    clients: list[Endpoint] = []
    schedulers: dict[Endpoint, int] = {}
    speaks: dict[Endpoint, Endpoint] = {}  # connecting endpoint of a worker: where that worker listens
    for op, flow, said in _telling(messages, dialogues):
        source, source_port, destination, port = connections.endpoints(flow)
        here, there = (source, source_port), (destination, port)
        if op in ("register-worker", "heartbeat_worker"):
            listens = parse_address(said.get("address")) or here
            speaks[here] = listens
            name = said.get("name")
            workers.setdefault(listens, None)
            workers[listens] = workers[listens] or (
                name if isinstance(name, str) and "://" not in name else None
            )
            schedulers[there] = schedulers.get(there, 0) + 1
        elif op in ("register-client", "heartbeat-client"):
            clients.append(here)
            schedulers[there] = schedulers.get(there, 0) + 1
        elif op == "get_data" and (who := parse_address(said.get("who"))):
            speaks[here] = who
            workers.setdefault(who, None)
            workers.setdefault(there, None)
        _versions(said, nodes)
    _assign(nodes, workers, clients, schedulers, speaks)
    return nodes


def _telling(
    messages: Messages, dialogues: Mapping[int, Dialogue]
) -> Iterator[tuple[str, int, dict[Any, Any]]]:
    done: set[tuple[int, str]] = set()
    for message, op in zip(messages.op_message.tolist(), messages.op_name, strict=True):
        if op not in SPEAKING or (int(messages.flow[message]), op) in done:
            continue
        try:
            said = content(messages, message, dialogues)
        except (UndecodableError, KeyError):
            continue
        done.add((int(messages.flow[message]), op))
        for item in said if isinstance(said, tuple) else (said,):
            if isinstance(item, dict) and item.get("op") == op:
                yield op, int(messages.flow[message]), item


def _versions(said: dict[Any, Any], nodes: Nodes) -> None:
    versions = said.get("versions")
    packages = versions.get("packages") if isinstance(versions, dict) else None
    if isinstance(packages, tuple):  # G1 and early G2 send pairs
        packages = {
            p[0]: p[1] for p in packages if isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str)
        }
    if isinstance(packages, dict) and isinstance(packages.get("distributed"), str):
        nodes.versions.add(packages["distributed"])


def _assign(
    nodes: Nodes,
    workers: dict[Endpoint, str | None],
    clients: list[Endpoint],
    schedulers: dict[Endpoint, int],
    speaks: dict[Endpoint, Endpoint],
) -> None:
    if schedulers:
        nodes.listening[max(schedulers, key=lambda e: schedulers[e])] = "scheduler"
    plain = [listens for listens in workers if listens not in nodes.listening]
    taken = [workers[listens] for listens in plain]
    for number, listens in enumerate(sorted(plain, key=_sort_key), 1):
        own = workers[listens]
        nodes.listening[listens] = own if own and taken.count(own) == 1 else f"worker-{number}"
    for here, listens in speaks.items():
        nodes.endpoint[here] = nodes.listening.get(listens, "")
    machines: list[str] = []
    for client in clients:
        if client[0] not in machines:
            machines.append(client[0])
        number = machines.index(client[0]) + 1
        nodes.endpoint[client] = "client" if number == 1 else f"client-{number}"
    for (address, _), name in [*nodes.listening.items(), *nodes.endpoint.items()]:
        nodes.by_address.setdefault(address, set()).add(name)


def _sort_key(endpoint: Endpoint) -> tuple[bytes, int]:
    address, port = endpoint
    return bytes(
        int(p) if p.isdigit() and int(p) < 256 else 0 for p in address.split(".")
    ) + address.encode(), port


def parse_address(text: object) -> Endpoint | None:
    """``tcp://10.0.0.1:8786`` as (address, port); None when it is something else."""
    if not isinstance(text, str) or "://" not in text:
        return None
    host, _, port = text.split("://", 1)[1].split("/")[0].rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() and port.isascii() else None
