"""Name the nodes: recognise endpoints by their messages, or use the names given by the user."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from daskwire.base.arrays import NONE
from daskwire.decoder.dask.content import UndecodableError, text
from daskwire.decoder.dask.conversations import Conversation
from daskwire.decoder.dask.messages import Messages, content
from daskwire.decoder.net.connections import Connections

# Assign connections to clusters. A cluster is identified by its scheduler's address.
#
# Names cannot identify a cluster: users choose them, and two clusters may use the same ones. An endpoint is
# a
# scheduler if workers or clients register with it, or if it sends or receives ops that only a scheduler
# does. A
# scheduler may have several endpoints (loopback and network, both sides of a NAT). They are one scheduler
# if a
# client's or the scheduler's own identifier proves it, or if the packets are the same.


def schedulers(identities: Identities) -> dict[Endpoint, Endpoint]:
    """Map each endpoint of a scheduler to its main one, which identifies the cluster.

    The main endpoint, and the first cluster, are those with the most messages that prove a scheduler.
    """
    main = {endpoint: endpoint for endpoint in identities.schedulers}
    for left, right in identities.aliases:
        if left in main and right in main and main[left] != main[right]:
            first, second = sorted((main[left], main[right]), key=lambda e: -identities.schedulers[e])
            main = {endpoint: first if head == second else head for endpoint, head in main.items()}
    total: defaultdict[Endpoint, int] = defaultdict(int)
    for endpoint, head in main.items():
        total[head] += identities.schedulers[endpoint]
    return {endpoint: main[endpoint] for endpoint in sorted(main, key=lambda e: -total[main[e]])}


def by_connection(
    main: dict[Endpoint, Endpoint], identities: Identities, connections: Connections
) -> list[Endpoint | None]:
    """Return the main endpoint of each connection's scheduler, None if the cluster is unknown.

    One end must be a scheduler, or a worker that registered with one. Otherwise the address of one end must
    belong to a single cluster.
    """
    ends = [_flow_ends(connections, 2 * number) for number in range(len(connections))]
    result = [
        _first(map(main.get, pair)) or _first(_registered(end, main, identities) for end in pair)
        for pair in ends
    ]
    heads_at: defaultdict[str, set[Endpoint]] = defaultdict(set)
    for pair, head in zip(ends, result, strict=True):
        if head:
            for address, _ in pair:
                heads_at[address].add(head)
    only = {address: next(iter(heads)) for address, heads in heads_at.items() if len(heads) == 1}
    return [
        head or _first(only.get(address) for address, _ in pair)
        for pair, head in zip(ends, result, strict=True)
    ]


def cluster_name(head: Endpoint | None) -> str:
    """Format a cluster for tables: ``address:port`` of its scheduler, empty for None."""
    if head is None:
        return ""
    return f"[{head[0]}]:{head[1]}" if ":" in head[0] else f"{head[0]}:{head[1]}"


def _registered(end: Endpoint, main: dict[Endpoint, Endpoint], identities: Identities) -> Endpoint | None:
    scheduler = identities.registered.get(identities.listener.get(end, end))
    return main[scheduler] if scheduler else None


def _first(heads: Iterable[Endpoint | None]) -> Endpoint | None:
    return next(filter(None, heads), None)


# Collect what messages reveal about the identity of their senders and receivers.

CLIENT_OPS = frozenset({  # only clients send these to a scheduler; workers and nannies do not
    "benchmark_hardware", "broadcast", "call_stack", "cancel", "gather", "get_task_metadata",
    "get_task_stream", "has_what", "ncores", "performance_report", "processing", "profile",
    "profile_metadata", "publish_list", "rebalance", "replicate", "restart", "restart_workers",
    "retire_workers", "run_function", "scatter", "start_task_metadata", "stop_task_metadata", "versions",
})  # fmt: skip
SCHEDULER_OPS = frozenset({  # only schedulers send these to a worker or nanny
    "benchmark_network", "call_stack", "free_keys", "gather", "get_logs", "plugin_add", "plugin_remove",
    "profile", "profile_metadata", "run", "versions",
})  # fmt: skip
IDENTIFYING = CLIENT_OPS | SCHEDULER_OPS | {
    "register-worker", "heartbeat_worker", "register-client", "heartbeat-client", "register_nanny",
    "unregister", "get_data", "identity",
}  # fmt: skip
FROM_SCHEDULER = frozenset({  # on the streams that workers and clients open to the scheduler
    "acquire-replicas", "cancel-compute", "cancelled-keys", "compute-task", "delete-data", "free-keys",
    "key-in-memory", "lost-data", "refresh-who-has", "release-task", "remove-replicas", "steal-request",
    "stream-start", "task-retried",
})  # fmt: skip
TO_SCHEDULER = frozenset({
    "add-keys", "client-desires-keys", "client-releases-keys", "close-client", "heartbeat-client",
    "long-running", "missing-data", "release-worker-data", "request-refresh-who-has", "reschedule",
    "steal-response", "task-finished", "update-graph", "update-graph-hlg",
})  # fmt: skip
Endpoint = tuple[str, int]


@dataclass
class Identities:
    """What is known about the endpoints of a capture.

    An endpoint is either local to a connection's opener or a listening address. A nanny's endpoints belong to
    its worker: both are one node, and a worker that the nanny restarted is the same node.

    Attributes:
        workers: worker's listening address -> the name that it chose, if any.
        nannies: worker's listening address -> its nanny's.
        schedulers: scheduler's listening address -> number of messages that prove it.
        registered: worker's or nanny's listening address -> its scheduler's.
        listener: endpoint -> listening address of the same worker or nanny.
        clients: endpoints of clients.
        owner: client's or scheduler's identifier -> the scheduler's address.
        aliases: pairs of addresses of the same scheduler.
        ops: endpoint -> its peer, and the ops sent to it.
        gathered: keys that clients requested from a scheduler.
        fetched: endpoint -> keys that it fetched without identifying itself.
    """

    workers: dict[Endpoint, str | None] = field(default_factory=dict)
    nannies: dict[Endpoint, Endpoint] = field(default_factory=dict)
    schedulers: Counter[Endpoint] = field(default_factory=Counter)
    registered: dict[Endpoint, Endpoint] = field(default_factory=dict)
    listener: dict[Endpoint, Endpoint] = field(default_factory=dict)
    clients: list[Endpoint] = field(default_factory=list)
    owner: dict[str, Endpoint] = field(default_factory=dict)
    aliases: list[tuple[Endpoint, Endpoint]] = field(default_factory=list)
    ops: dict[Endpoint, tuple[Endpoint, set[str]]] = field(default_factory=dict)
    gathered: set[str] = field(default_factory=set)
    fetched: dict[Endpoint, set[str]] = field(default_factory=dict)

    def add_message(self, op: str, sender: Endpoint, receiver: Endpoint, fields: dict[Any, Any]) -> None:
        """Evaluate a message with one of the IDENTIFYING ops."""
        if op in ("register-worker", "heartbeat_worker"):
            self._add_worker(sender, receiver, fields)
        elif op in ("register-client", "heartbeat-client"):
            self.clients.append(sender)
            self.schedulers[receiver] += 1
            self._add_identifier(fields.get("client"), receiver)
        elif op in ("register_nanny", "unregister"):
            self.listener[sender] = parse_address(fields.get("address")) or sender
        elif op == "get_data":
            self._add_fetch(sender, receiver, fields)
        elif op != "identity":
            self.ops.setdefault(sender, (receiver, set()))[1].add(op)
        if op == "gather":
            self.gathered |= _keys(fields)

    def add_op(self, op: str, sender: Endpoint, receiver: Endpoint) -> None:
        """Evaluate that an op was sent, whatever its message contains."""
        if op in FROM_SCHEDULER:
            self.schedulers[sender] += 1
        elif op in TO_SCHEDULER:
            self.schedulers[receiver] += 1

    def add_identity(self, receiver: Endpoint, reply: Any) -> None:
        """Evaluate a reply to ``identity``: a scheduler sends its identifier and the address it announces."""
        if not isinstance(reply, dict) or reply.get("type") != "Scheduler":
            return
        self.schedulers[receiver] += 1
        self._add_identifier(reply.get("id"), receiver)
        if announced := parse_address(reply.get("address")):
            self.aliases.append((receiver, announced))

    def add_relays(self, pairs: list[tuple[Endpoint, Endpoint]]) -> None:
        """Treat what a relay listens on as another address of the process behind it."""
        for relay, behind in pairs:
            if behind in self.schedulers or relay in self.schedulers:
                # The scheduler's own address has the most messages, so that it identifies the cluster.
                self.schedulers[behind] += self.schedulers[relay] + 1
                self.schedulers[relay] += 1
                self.aliases.append((behind, relay))
            elif relay in self.workers and behind in self.workers:
                self.workers[relay] = self.workers[behind]

    def _add_identifier(self, identifier: Any, scheduler: Endpoint) -> None:
        """Join the addresses used with one identifier: those of clients and schedulers are unique."""
        if isinstance(identifier, str) and identifier:
            self.aliases.append((self.owner.setdefault(identifier, scheduler), scheduler))

    def _add_worker(self, sender: Endpoint, receiver: Endpoint, fields: dict[Any, Any]) -> None:
        listener = parse_address(fields.get("address")) or sender
        name, nanny = fields.get("name"), parse_address(fields.get("nanny"))
        self.listener[sender] = listener
        own_name = name if isinstance(name, str) and "://" not in name else None
        self.workers[listener] = self.workers.get(listener) or own_name
        self.schedulers[receiver] += 1
        self.registered[listener] = receiver
        if nanny:
            self.nannies[listener] = nanny
            self.registered[nanny] = receiver

    def _add_fetch(self, sender: Endpoint, receiver: Endpoint, fields: dict[Any, Any]) -> None:
        """Evaluate ``get_data``. Workers identify themselves; a gathering scheduler does not."""
        self.workers.setdefault(receiver, None)
        if who := parse_address(fields.get("who")):
            self.listener[sender] = who
            self.workers.setdefault(who, None)
        else:
            self.fetched[sender] = _keys(fields)


def _keys(fields: dict[Any, Any]) -> set[str]:
    keys = fields.get("keys")
    if isinstance(keys, dict):  # a set
        keys = keys.get("as-list")
    return {key if type(key) is str else text(key) for key in keys} if isinstance(keys, tuple) else set()


def directional_ops(messages: Messages) -> list[tuple[int, str]]:
    """Return flow and name of the ops that show which side of a connection is the scheduler, each once."""
    names, numbers = messages.op_numbers
    rows = messages.ops_named(FROM_SCHEDULER | TO_SCHEDULER)
    codes = np.unique(messages.flow[messages.op_message[rows]] * len(names) + numbers[rows])
    return [(code // len(names), names[code % len(names)]) for code in codes.tolist()]


def identifying_messages(
    messages: Messages, conversations: Mapping[int, Conversation]
) -> Iterator[tuple[str, int, int, dict[Any, Any]]]:
    """Yield op, flow, row and fields of identifying messages.

    These are the first message of each IDENTIFYING op per flow, and every ``gather``.
    """
    evaluated: set[tuple[int, str]] = set()
    rows = messages.ops_named(IDENTIFYING)
    of_ops = messages.op_message[rows]
    for row, message, flow in zip(
        rows.tolist(), of_ops.tolist(), messages.flow[of_ops].tolist(), strict=True
    ):
        op = messages.op_name[row]
        if (flow, op) in evaluated:
            continue
        try:
            body = content(messages, message, conversations)
        except (UndecodableError, KeyError):
            continue
        if op != "gather":
            evaluated.add((flow, op))
        for fields in body if isinstance(body, tuple) else (body,):
            if isinstance(fields, dict) and fields.get("op") == op:
                yield op, flow, message, fields


def parse_address(value: object) -> Endpoint | None:
    """Parse ``tcp://10.0.0.1:8786`` into (address, port); return None for anything else."""
    if not isinstance(value, str) or "://" not in value:
        return None
    host, _, port = value.split("://", 1)[1].split("/")[0].rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() and port.isascii() else None


# Name the nodes: recognise endpoints by their messages, or use the names given by the user.
#
# A worker registers with its listening address; a client registers as a client; the receiver of a
# registration
# or of a worker's heartbeat is the scheduler; a worker that requests data includes its address. Other
# endpoints
# are recognised by ops that only clients, or only schedulers, send. Several nodes may share one IP address
# (a
# cluster on one machine), so names belong to endpoints, and to an IP address only if a single node uses it.
# A
# nanny and all workers that it started are one node.
#
# Names are for people: users choose them, and two clusters may use the same ones. The role, the cluster and
# the
# process of an endpoint are therefore looked up by its address, never by its name.

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
        sender, receiver = _flow_ends(connections, flow)
        identities.add_message(op, sender, receiver, fields)
        if op == "identity" and messages.answer[message] != NONE:
            reply = _content(messages, int(messages.answer[message]), conversations)
            identities.add_identity(receiver, reply)
        _add_versions(fields, nodes)
    for flow, op in directional_ops(messages):
        identities.add_op(op, *_flow_ends(connections, flow))
    for outer, inner in translated:
        identities.aliases += zip(_flow_ends(connections, outer), _flow_ends(connections, inner), strict=True)
    ends = [(_listener(connections, outer), _listener(connections, inner)) for outer, inner in relayed]
    identities.add_relays(ends)
    nodes.schedulers, nodes.processes = schedulers(identities), identities.listener
    nodes.clusters = by_connection(nodes.schedulers, identities, connections)
    _assign(nodes, identities)
    for _, inner in relayed:
        _name_relay(nodes, _opener(connections, inner))
    return nodes


def _listener(connections: Connections, number: int) -> Endpoint:
    """Return the end of a connection that seems to have accepted it: its port is lower."""
    return min(_flow_ends(connections, 2 * number), key=lambda end: end[1])


def _opener(connections: Connections, number: int) -> Endpoint:
    return max(_flow_ends(connections, 2 * number), key=lambda end: end[1])


def _name_relay(nodes: Nodes, endpoint: Endpoint) -> None:
    """Name a relay's end of a connection, and its address if no other node uses it."""
    nodes.endpoint[endpoint] = RELAY
    nodes.by_address.setdefault(endpoint[0], set()).add(RELAY)


def _flow_ends(connections: Connections, flow: int) -> tuple[Endpoint, Endpoint]:
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
