"""Who is who: endpoints recognised by what they say, or named by the user.

A worker registers with the address it listens on; a client registers as a client; whoever receives a
registration or a worker's heartbeat is the scheduler; the requester of data says its address. Several nodes
may share one IP address (a cluster on one machine), so names belong to endpoints, and to an IP address only
when a single node was seen there. What does not say who it is may say what only clients, or only schedulers,
say. A nanny and all workers that it started are one node.

A name is for people. It may be chosen by a user, and no two clusters have agreed on theirs: which role an
endpoint has, and which cluster and process it belongs to, are asked by its address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from daskwire.dask import clusters
from daskwire.dask.dialogues import Dialogue
from daskwire.dask.evidence import CLIENT_SAYS, SCHEDULER_SAYS, Endpoint, Evidence, carried, telling
from daskwire.dask.messagepack import UndecodableError
from daskwire.dask.messages import Messages, content
from daskwire.net.connections import Connections

ROLE = re.compile(r"(scheduler|client)(-\d+)?")  # what no worker is called, whatever it calls itself


@dataclass
class Nodes:
    """Names of endpoints. ``listening`` maps the address that a node serves on to its name.

    ``schedulers``: each scheduler's endpoint, and the one that its cluster is called by; ``clusters``: that
    one for each connection, None where it is not known; ``processes``: the address that the process behind
    an endpoint serves on.
    """

    given: Mapping[str, str]
    endpoint: dict[Endpoint, str] = field(default_factory=dict)
    listening: dict[Endpoint, str] = field(default_factory=dict)
    by_address: dict[str, set[str]] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)  # of distributed, as workers and clients said
    schedulers: dict[Endpoint, Endpoint] = field(default_factory=dict)
    clusters: list[Endpoint | None] = field(default_factory=list)
    processes: dict[Endpoint, Endpoint] = field(default_factory=dict)

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
    messages: Messages,
    dialogues: Mapping[int, Dialogue],
    connections: Connections,
    given: Mapping[str, str],
    translated: Iterable[tuple[int, int]] = (),
) -> Nodes:
    """Learn names from one message of each telling kind per connection.

    ``translated``: flows of which the second is the first behind a NAT.
    """
    nodes, known = Nodes(given), Evidence()
    for op, flow, message, said in telling(messages, dialogues):
        here, there = _ends(connections, flow)
        known.hear(op, here, there, said)
        if op == "identity" and messages.answer[message] >= 0:
            known.identify(there, _content(messages, int(messages.answer[message]), dialogues))
        _versions(said, nodes)
    for flow, op in carried(messages):
        known.carry(op, *_ends(connections, flow))
    for before, behind in translated:
        known.same += zip(_ends(connections, before), _ends(connections, behind), strict=True)
    nodes.schedulers, nodes.processes = clusters.schedulers(known), known.speaks
    nodes.clusters = clusters.by_connection(nodes.schedulers, known, connections)
    _assign(nodes, known)
    return nodes


def _ends(connections: Connections, flow: int) -> tuple[Endpoint, Endpoint]:
    source, source_port, destination, port = connections.endpoints(flow)
    return (source, source_port), (destination, port)


def _content(messages: Messages, message: int, dialogues: Mapping[int, Dialogue]) -> Any:
    try:
        return content(messages, message, dialogues)
    except (UndecodableError, KeyError):
        return None


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
    heads = list(dict.fromkeys(nodes.schedulers.values()))
    for endpoint, head in nodes.schedulers.items():
        nodes.listening[endpoint] = _numbered("scheduler", heads.index(head) + 1)
    _name_workers(nodes, known)
    for here, listens in known.speaks.items():
        nodes.endpoint[here] = nodes.listening.get(listens, "")
    machines: list[str] = []
    for client in known.clients:
        if client[0] not in machines:
            machines.append(client[0])
        nodes.endpoint[client] = _numbered("client", machines.index(client[0]) + 1)
    _name_by_speech(nodes, known)
    for (address, _), name in [*nodes.listening.items(), *nodes.endpoint.items()]:
        nodes.by_address.setdefault(address, set()).add(name)


def _numbered(role: str, number: int) -> str:
    return role if number == 1 else f"{role}-{number}"


def _name_workers(nodes: Nodes, known: Evidence) -> None:
    """A worker's own name, else a number in the order of addresses that no other worker calls itself by. Two
    schedulers' workers of one name are two.
    """
    plain = sorted((w for w in known.workers if w not in nodes.listening), key=_sort_key)
    users: dict[str, set[Endpoint | None]] = {}
    for listens in plain:
        if own := known.workers[listens]:
            scheduler = known.registered.get(listens)
            users.setdefault(own, set()).add(nodes.schedulers[scheduler] if scheduler else None)
    alone = {own for own, clusters in users.items() if len(clusters) == 1 and not ROLE.fullmatch(own)}
    names: dict[object, str] = {}
    for listens in plain:
        own, nanny = known.workers[listens], known.nannies.get(listens)
        name = own if own in alone else None
        identity = name or nanny or listens
        if identity not in names:
            names[identity] = name or _free(len(names) + 1, {*alone, *names.values()})
        nodes.listening[listens] = names[identity]
        if nanny:
            nodes.listening[nanny] = nodes.listening[listens]


def _free(number: int, used: set[str]) -> str:
    """The first ``worker-N`` from a number on that is not used."""
    return next(name for n in count(number) if (name := f"worker-{n}") not in used)


def _name_by_speech(nodes: Nodes, known: Evidence) -> None:
    """Connections that say what one kind of node says, where one of that kind has their address."""
    clients = {here: nodes.endpoint[here] for here in known.clients}
    schedulers = {there: nodes.listening[there] for there in nodes.schedulers}
    for here, (there, ops) in known.says.items():
        if there in nodes.schedulers and ops & CLIENT_SAYS:
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
