"""Who is who: endpoints recognised by what they say, or named by the user.

A worker registers with the address it listens on; a client registers as a client; whoever receives a
registration or a worker's heartbeat is the scheduler; the requester of data says its address. Several nodes
may share one IP address (a cluster on one machine), so names belong to endpoints, and to an IP address only
when a single node was seen there. What does not say who it is may say what only clients, or only schedulers,
say. A nanny and all workers that it started are one node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.wire.dask.dialogues import Dialogue
from lab.wire.dask.evidence import CLIENT_SAYS, SCHEDULER_SAYS, Endpoint, Evidence, telling
from lab.wire.dask.messages import Messages
from lab.wire.net.connections import Connections


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

    def learn(self, here: Endpoint, among: Mapping[Endpoint, str]) -> None:
        """An endpoint is of one of some nodes: its name is known where only one of them has its address."""
        names = {name for (address, _), name in among.items() if address == here[0]}
        if len(names) == 1:
            self.endpoint.setdefault(here, next(iter(names)))


def recognise_nodes(
    messages: Messages, dialogues: Mapping[int, Dialogue], connections: Connections, given: Mapping[str, str]
) -> Nodes:
    """Learn names from one message of each telling kind per connection."""
    nodes, known = Nodes(given), Evidence()
    for op, flow, said in telling(messages, dialogues):
        source, source_port, destination, port = connections.endpoints(flow)
        known.hear(op, (source, source_port), (destination, port), said)
        _versions(said, nodes)
    _assign(nodes, known)
    return nodes


def _versions(said: dict[Any, Any], nodes: Nodes) -> None:
    versions = said.get("versions")
    packages = versions.get("packages") if isinstance(versions, dict) else None
    if isinstance(packages, tuple):  # G1 and early G2 send pairs
        packages = {
            p[0]: p[1] for p in packages if isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str)
        }
    if isinstance(packages, dict) and isinstance(packages.get("distributed"), str):
        nodes.versions.add(packages["distributed"])


def _assign(nodes: Nodes, known: Evidence) -> None:
    if known.schedulers:
        nodes.listening[max(known.schedulers, key=lambda e: known.schedulers[e])] = "scheduler"
    _name_workers(nodes, known)
    for here, listens in known.speaks.items():
        nodes.endpoint[here] = nodes.listening.get(listens, "")
    machines: list[str] = []
    for client in known.clients:
        if client[0] not in machines:
            machines.append(client[0])
        number = machines.index(client[0]) + 1
        nodes.endpoint[client] = "client" if number == 1 else f"client-{number}"
    _name_by_speech(nodes, known)
    for (address, _), name in [*nodes.listening.items(), *nodes.endpoint.items()]:
        nodes.by_address.setdefault(address, set()).add(name)


def _name_workers(nodes: Nodes, known: Evidence) -> None:
    """A worker's own name, else a number in the order of addresses. Two schedulers' workers of one name are
    two.
    """
    plain = sorted((w for w in known.workers if w not in nodes.listening), key=_sort_key)
    users: dict[str, set[Endpoint | None]] = {}
    for listens in plain:
        if own := known.workers[listens]:
            users.setdefault(own, set()).add(known.registered.get(listens))
    numbers: dict[object, int] = {}
    for listens in plain:
        own, nanny = known.workers[listens], known.nannies.get(listens)
        alone = own and len(users[own]) == 1
        number = numbers.setdefault(own if alone else nanny or listens, len(numbers) + 1)
        nodes.listening[listens] = str(own) if alone else f"worker-{number}"
        if nanny:
            nodes.listening[nanny] = nodes.listening[listens]


def _name_by_speech(nodes: Nodes, known: Evidence) -> None:
    """Connections that say what one kind of node says, where one of that kind has their address."""
    clients = {here: nodes.endpoint[here] for here in known.clients}
    schedulers = {there: name for there, name in nodes.listening.items() if name == "scheduler"}
    for here, (there, ops) in known.says.items():
        if nodes.listening.get(there) == "scheduler" and ops & CLIENT_SAYS:
            nodes.learn(here, clients)
        elif there in nodes.listening and ops & SCHEDULER_SAYS:
            nodes.learn(here, schedulers)
    for here, keys in known.fetched.items():
        if keys and keys <= known.asked:
            nodes.learn(here, schedulers)


def _sort_key(endpoint: Endpoint) -> tuple[bytes, int]:
    address, port = endpoint
    return bytes(
        int(p) if p.isdigit() and int(p) < 256 else 0 for p in address.split(".")
    ) + address.encode(), port
