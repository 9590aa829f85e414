"""What nodes say of themselves and of each other, before names are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from daskwire.dask.dialogues import Dialogue
from daskwire.dask.messagepack import UndecodableError, text
from daskwire.dask.messages import Messages, content

CLIENT_SAYS = frozenset({  # to a scheduler; what a worker or nanny may say to it too is not among them
    "benchmark_hardware", "broadcast", "call_stack", "cancel", "gather", "get_task_metadata",
    "get_task_stream", "has_what", "ncores", "performance_report", "processing", "profile",
    "profile_metadata", "publish_list", "rebalance", "replicate", "restart", "restart_workers",
    "retire_workers", "run_function", "scatter", "start_task_metadata", "stop_task_metadata", "versions",
})  # fmt: skip
SCHEDULER_SAYS = frozenset({  # to a worker or nanny; nobody else says these to it
    "benchmark_network", "call_stack", "free_keys", "gather", "get_logs", "plugin_add", "plugin_remove",
    "profile", "profile_metadata", "run", "versions",
})  # fmt: skip
SPEAKING = CLIENT_SAYS | SCHEDULER_SAYS | {
    "register-worker", "heartbeat_worker", "register-client", "heartbeat-client", "register_nanny",
    "unregister", "get_data", "identity",
}  # fmt: skip
FROM_SCHEDULER = frozenset({  # on the streams to workers and clients, which those open to the scheduler
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
class Evidence:
    """What was said of who is who; endpoints are those that connect (``here``) or that are listened on.

    A nanny's endpoints belong to its worker: they are one node, and a worker that its nanny started anew is
    the one from before.
    """

    workers: dict[Endpoint, str | None] = field(default_factory=dict)  # listens on: its own name
    nannies: dict[Endpoint, Endpoint] = field(default_factory=dict)  # worker: its nanny
    schedulers: Counter[Endpoint] = field(default_factory=Counter)
    registered: dict[Endpoint, Endpoint] = field(default_factory=dict)  # worker or nanny: its scheduler
    speaks: dict[Endpoint, Endpoint] = field(default_factory=dict)  # here: the worker or nanny that it is of
    clients: list[Endpoint] = field(default_factory=list)
    owner: dict[str, Endpoint] = field(default_factory=dict)  # client or scheduler identifier: scheduler
    same: list[tuple[Endpoint, Endpoint]] = field(default_factory=list)  # addresses of one scheduler
    says: dict[Endpoint, tuple[Endpoint, set[str]]] = field(default_factory=dict)  # here: to whom, which ops
    asked: set[str] = field(default_factory=set)  # keys that clients asked the scheduler to gather
    fetched: dict[Endpoint, set[str]] = field(default_factory=dict)  # here: keys fetched without a name

    def hear(self, op: str, here: Endpoint, there: Endpoint, said: dict[Any, Any]) -> None:
        """One message of a telling kind."""
        if op in ("register-worker", "heartbeat_worker"):
            self._worker(here, there, said)
        elif op in ("register-client", "heartbeat-client"):
            self.clients.append(here)
            self.schedulers[there] += 1
            self._belongs(said.get("client"), there)
        elif op in ("register_nanny", "unregister"):
            self.speaks[here] = parse_address(said.get("address")) or here
        elif op == "get_data":
            self._fetch(here, there, said)
        elif op != "identity":
            self.says.setdefault(here, (there, set()))[1].add(op)
        if op == "gather":
            self.asked |= _keys(said)

    def carry(self, op: str, here: Endpoint, there: Endpoint) -> None:
        """A connection carried an op, whatever stood in it."""
        if op in FROM_SCHEDULER:
            self.schedulers[here] += 1
        elif op in TO_SCHEDULER:
            self.schedulers[there] += 1

    def identify(self, there: Endpoint, reply: Any) -> None:
        """A reply to ``identity``: a scheduler gives its identifier and the address that it announces."""
        if not isinstance(reply, dict) or reply.get("type") != "Scheduler":
            return
        self.schedulers[there] += 1
        self._belongs(reply.get("id"), there)
        if announced := parse_address(reply.get("address")):
            self.same.append((there, announced))

    def _belongs(self, identifier: Any, scheduler: Endpoint) -> None:
        """Unite the addresses that one identifier was used with: clients and schedulers have unique ones."""
        if isinstance(identifier, str) and identifier:
            self.same.append((self.owner.setdefault(identifier, scheduler), scheduler))

    def _worker(self, here: Endpoint, there: Endpoint, said: dict[Any, Any]) -> None:
        listens = parse_address(said.get("address")) or here
        name, nanny = said.get("name"), parse_address(said.get("nanny"))
        self.speaks[here] = listens
        own = name if isinstance(name, str) and "://" not in name else None
        self.workers[listens] = self.workers.get(listens) or own
        self.schedulers[there] += 1
        self.registered[listens] = there
        if nanny:
            self.nannies[listens] = nanny
            self.registered[nanny] = there

    def _fetch(self, here: Endpoint, there: Endpoint, said: dict[Any, Any]) -> None:
        """Workers say who asks; a scheduler that gathers for a client does not."""
        self.workers.setdefault(there, None)
        if who := parse_address(said.get("who")):
            self.speaks[here] = who
            self.workers.setdefault(who, None)
        else:
            self.fetched[here] = _keys(said)


def _keys(said: dict[Any, Any]) -> set[str]:
    keys = said.get("keys")
    if isinstance(keys, dict):  # a set
        keys = keys.get("as-list")
    return set(map(text, keys)) if isinstance(keys, tuple) else set()


def carried(messages: Messages) -> set[tuple[int, str]]:
    """The ops of each flow that tell on which side the scheduler is."""
    ops = set(zip(messages.flow[messages.op_message].tolist(), messages.op_name, strict=True))
    return {(flow, op) for flow, op in ops if op in FROM_SCHEDULER or op in TO_SCHEDULER}


def telling(
    messages: Messages, dialogues: Mapping[int, Dialogue]
) -> Iterator[tuple[str, int, int, dict[Any, Any]]]:
    """One message of each telling kind per flow, all of those that name keys to gather.

    Yields op, flow, row of messages, content.
    """
    done: set[tuple[int, str]] = set()
    for message, op in zip(messages.op_message.tolist(), messages.op_name, strict=True):
        if op not in SPEAKING or (int(messages.flow[message]), op) in done:
            continue
        try:
            said = content(messages, message, dialogues)
        except (UndecodableError, KeyError):
            continue
        if op != "gather":
            done.add((int(messages.flow[message]), op))
        for item in said if isinstance(said, tuple) else (said,):
            if isinstance(item, dict) and item.get("op") == op:
                yield op, int(messages.flow[message]), message, item


def parse_address(text: object) -> Endpoint | None:
    """``tcp://10.0.0.1:8786`` as (address, port); None when it is something else."""
    if not isinstance(text, str) or "://" not in text:
        return None
    host, _, port = text.split("://", 1)[1].split("/")[0].rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() and port.isascii() else None
