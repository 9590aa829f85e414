"""Collect what messages reveal about the identity of their senders and receivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskwire.decoder.dask.conversations import Conversation
from daskwire.decoder.dask.framing.messagepack import UndecodableError, text
from daskwire.decoder.dask.messages import Messages, content

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
