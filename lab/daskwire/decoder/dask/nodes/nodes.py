"""Name the nodes: recognise endpoints by their messages, or use the names given by the user.

A worker registers with its listening address; a client registers as a client; the receiver of a registration
or of a worker's heartbeat is the scheduler; a worker that requests data includes its address. Other endpoints
are recognised by ops that only clients, or only schedulers, send. Several nodes may share one IP address (a
cluster on one machine), so names belong to endpoints, and to an IP address only if a single node uses it. A
nanny and all workers that it started are one node.

Names are for people: users choose them, and two clusters may use the same ones. The role, the cluster and the
process of an endpoint are therefore looked up by its address, never by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from daskwire.base.arrays import NONE
from daskwire.decoder.dask.conversations import Conversation
from daskwire.decoder.dask.framing.messagepack import UndecodableError
from daskwire.decoder.dask.messages import Messages, content
from daskwire.decoder.dask.nodes import clusters
from daskwire.decoder.dask.nodes.identities import (
    CLIENT_OPS,
    SCHEDULER_OPS,
    Endpoint,
    Identities,
    directional_ops,
    identifying_messages,
)
from daskwire.decoder.net.connections import Connections

RELAY = "relay"
ROLE = re.compile(r"(scheduler|client|relay)(-\d+)?")  # names that are never used for a worker


@dataclass
class Nodes:
    """Names of endpoints.

    Attributes:
        user_names: address or ``address:port`` -> name chosen by the user of the decoder.
        endpoint: opening endpoint -> name.
        listening: listening address -> name.
        by_address: IP address -> names of its nodes.
        versions: versions of distributed that workers and clients reported.
        schedulers: scheduler's endpoint -> the endpoint that identifies its cluster.
        clusters: per connection, the endpoint that identifies its cluster, None if unknown.
        processes: endpoint -> listening address of its process.
    """

    user_names: Mapping[str, str]
    endpoint: dict[Endpoint, str] = field(default_factory=dict)
    listening: dict[Endpoint, str] = field(default_factory=dict)
    by_address: dict[str, set[str]] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    schedulers: dict[Endpoint, Endpoint] = field(default_factory=dict)
    clusters: list[Endpoint | None] = field(default_factory=list)
    processes: dict[Endpoint, Endpoint] = field(default_factory=dict)

    def name(self, address: str, port: int) -> str:
        """Return the name of the node behind an endpoint, its IP address if unknown."""
        for key in (f"{address}:{port}", address):
            if key in self.user_names:
                return self.user_names[key]
        name = self.endpoint.get((address, port)) or self.listening.get((address, port))
        if name:
            return name
        names = self.by_address.get(address, set())
        return next(iter(names)) if len(names) == 1 else address

    def assign(self, endpoint: Endpoint, candidates: Mapping[Endpoint, str]) -> None:
        """Name an endpoint after the only candidate with the same IP address, if there is exactly one."""
        names = {name for (address, _), name in candidates.items() if address == endpoint[0]}
        if len(names) == 1:
            self.endpoint.setdefault(endpoint, next(iter(names)))


def recognise_nodes(
    messages: Messages,
    conversations: Mapping[int, Conversation],
    connections: Connections,
    user_names: Mapping[str, str],
    translated: Iterable[tuple[int, int]] = (),
    relayed: Iterable[tuple[int, int]] = (),
) -> Nodes:
    """Name the nodes of a capture.

    Args:
        messages: all messages.
        conversations: the connections that carry Dask.
        connections: all connections.
        user_names: address or ``address:port`` -> name.
        translated: pairs of flows; the second is the first on the other side of a NAT.
        relayed: pairs of connections; the second carries the first on from a TCP relay.
    """
    nodes, identities = Nodes(user_names), Identities()
    for op, flow, message, fields in identifying_messages(messages, conversations):
        sender, receiver = _ends(connections, flow)
        identities.add_message(op, sender, receiver, fields)
        if op == "identity" and messages.answer[message] != NONE:
            reply = _content(messages, int(messages.answer[message]), conversations)
            identities.add_identity(receiver, reply)
        _add_versions(fields, nodes)
    for flow, op in directional_ops(messages):
        identities.add_op(op, *_ends(connections, flow))
    for outer, inner in translated:
        identities.aliases += zip(_ends(connections, outer), _ends(connections, inner), strict=True)
    ends = [(_listener(connections, outer), _listener(connections, inner)) for outer, inner in relayed]
    identities.add_relays(ends)
    nodes.schedulers, nodes.processes = clusters.schedulers(identities), identities.listener
    nodes.clusters = clusters.by_connection(nodes.schedulers, identities, connections)
    _assign(nodes, identities)
    for _, inner in relayed:
        _name_relay(nodes, _opener(connections, inner))
    return nodes


def _listener(connections: Connections, number: int) -> Endpoint:
    """Return the end of a connection that seems to have accepted it: its port is lower."""
    return min(_ends(connections, 2 * number), key=lambda end: end[1])


def _opener(connections: Connections, number: int) -> Endpoint:
    return max(_ends(connections, 2 * number), key=lambda end: end[1])


def _name_relay(nodes: Nodes, endpoint: Endpoint) -> None:
    """Name a relay's end of a connection, and its address if no other node uses it."""
    nodes.endpoint[endpoint] = RELAY
    nodes.by_address.setdefault(endpoint[0], set()).add(RELAY)


def _ends(connections: Connections, flow: int) -> tuple[Endpoint, Endpoint]:
    source, source_port, destination, port = connections.endpoints(flow)
    return (source, source_port), (destination, port)


def _content(messages: Messages, message: int, conversations: Mapping[int, Conversation]) -> Any:
    try:
        return content(messages, message, conversations)
    except (UndecodableError, KeyError):
        return None


def _add_versions(fields: dict[Any, Any], nodes: Nodes) -> None:
    versions = fields.get("versions")
    packages = versions.get("packages") if isinstance(versions, dict) else None
    if isinstance(packages, tuple):  # G1 and early G2 send pairs
        packages = {
            p[0]: p[1] for p in packages if isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str)
        }
    if isinstance(packages, dict) and isinstance(packages.get("distributed"), str):
        nodes.versions.add(packages["distributed"])


def _assign(nodes: Nodes, identities: Identities) -> None:
    heads = list(dict.fromkeys(nodes.schedulers.values()))
    for endpoint, head in nodes.schedulers.items():
        nodes.listening[endpoint] = _numbered("scheduler", heads.index(head) + 1)
    _name_workers(nodes, identities)
    for endpoint, listener in identities.listener.items():
        nodes.endpoint[endpoint] = nodes.listening.get(listener, "")
    machines: list[str] = []
    for client in identities.clients:
        if client[0] not in machines:
            machines.append(client[0])
        nodes.endpoint[client] = _numbered("client", machines.index(client[0]) + 1)
    _name_by_ops(nodes, identities)
    for (address, _), name in [*nodes.listening.items(), *nodes.endpoint.items()]:
        nodes.by_address.setdefault(address, set()).add(name)


def _numbered(role: str, number: int) -> str:
    return role if number == 1 else f"{role}-{number}"


def _name_workers(nodes: Nodes, identities: Identities) -> None:
    """Use each worker's own name if it is unique among clusters, else generate ``worker-N`` by address."""
    listeners = sorted((w for w in identities.workers if w not in nodes.listening), key=_sort_key)
    users: dict[str, set[Endpoint | None]] = {}
    for listener in listeners:
        if own_name := identities.workers[listener]:
            scheduler = identities.registered.get(listener)
            users.setdefault(own_name, set()).add(nodes.schedulers[scheduler] if scheduler else None)
    unique = {name for name, owners in users.items() if len(owners) == 1 and not ROLE.fullmatch(name)}
    names: dict[object, str] = {}
    for listener in listeners:
        own_name, nanny = identities.workers[listener], identities.nannies.get(listener)
        chosen = nodes.user_names.get(f"{listener[0]}:{listener[1]}")
        name = chosen or (own_name if own_name in unique else None)
        identity = name or nanny or listener
        if identity not in names:
            names[identity] = name or _unused_name(len(names) + 1, {*unique, *names.values()})
        nodes.listening[listener] = names[identity]
        if nanny:
            nodes.listening[nanny] = nodes.listening[listener]


def _unused_name(number: int, used: set[str]) -> str:
    """Return the first unused ``worker-N`` with N >= ``number``."""
    return next(name for n in count(number) if (name := f"worker-{n}") not in used)


def _name_by_ops(nodes: Nodes, identities: Identities) -> None:
    """Name endpoints that sent ops which only clients, or only schedulers, send."""
    clients = {endpoint: nodes.endpoint[endpoint] for endpoint in identities.clients}
    schedulers = {endpoint: nodes.listening[endpoint] for endpoint in nodes.schedulers}
    for sender, (receiver, ops) in identities.ops.items():
        if receiver in nodes.schedulers and ops & CLIENT_OPS:
            nodes.assign(sender, clients)
        elif receiver in nodes.listening and ops & SCHEDULER_OPS:
            nodes.assign(sender, schedulers)
    for sender, keys in identities.fetched.items():
        if keys and keys <= identities.gathered:
            nodes.assign(sender, schedulers)


def _sort_key(endpoint: Endpoint) -> tuple[bytes, int]:
    address, port = endpoint
    return bytes(
        int(p) if p.isdigit() and int(p) < 256 else 0 for p in address.split(".")
    ) + address.encode(), port
