"""The scheduler's recorder: a row per task, and what happened to the cluster."""

# mypy: disable-error-code="no-untyped-call,attr-defined,misc"
from __future__ import annotations

import json
from collections import deque
from collections.abc import Container, Mapping
from itertools import islice
from typing import Any

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time

from dasklab.records.recorder.base import MAX_LOG_ROWS, NAME, TICK_MS, Owner, Recorder, guarded
from dasklab.records.recorder.layout import SCHEDULER
from dasklab.records.recorder.life import RecorderEvent
from dasklab.records.recorder.patches import replace, replace_item
from dasklab.records.recorder.process import NAN, without_credentials

MOST_DEPARTED = 50  # answers of workers, of 2 MB at most each
BEFORE = 0  # number of the graphs that had been received when the recording began
MAX_CHAIN_OF_DEPENDENTS = 20  # the longest way from a task to one that a client waits for
NO_STAGES = (NAN, NAN, NAN, NAN, "", "", None)  # queued, decided, due, sent; trigger, stimulus, worker
OF_CLIENTS = ("cancel", "retry")  # what Dask logs under the name of the client that did it
KEY_SETS = ("processing-tasks", "lost-computed-tasks", "lost-scattered-tasks")  # sizes are recorded
NOT_LOST = ("client-releases-keys", "cancel-key", "task-finished", "update-graph")
"""Reasons to release a result that nobody needs any more; they are not recorded."""

LOST_ATTEMPT = "lost"
"""Status of an attempt that ended because its worker did."""

NO_SPAN = ("default",)  # Dask's span of tasks that the user gave none


class SchedulerRecorder(Recorder, SchedulerPlugin):
    """The scheduler's records: a row per task, and what happened to the cluster."""

    name = NAME
    idempotent = False
    tables = SCHEDULER

    async def start(self, scheduler: Any) -> None:
        """Dask calls this when the plugin is registered.

        Raises:
            RuntimeError: the cluster is being recorded already.
        """
        if other := scheduler.plugins.get(NAME):
            if not self.inherits(other.owner, scheduler.clients):
                raise RuntimeError(f"this cluster is already being recorded: {other.owner.text}")
            await other.close_everywhere()
        try:
            self.attach(scheduler)
        except Exception:
            self.detach()
            raise
        self.life.move(RecorderEvent.ATTACH)

    def inherits(self, other: Owner, clients: Container[str]) -> bool:
        """Return whether another recording was left behind: by its client, or by a block of this process."""
        abandoned = other.process == self.owner.process and other.record not in self.owner.others
        return abandoned or other.client not in clients

    def attach(self, server: Any) -> None:
        super().attach(server)
        self.open: dict[Any, list[Any]] = {}  # of each unfinished task: its graph's number, its stages
        self.ended: tuple[str, str] = ("", "")  # the stimulus of the last end of a task, and its key
        self.graphs = 0  # so many have been received
        self.heartbeats: dict[str, Any] = {}  # of each worker: the metrics that are recorded already
        self.departed: deque[dict[str, Any]] = deque(
            maxlen=MOST_DEPARTED
        )  # last records of workers that closed
        for name, handler in (("dasklab_detach", self.end), ("dasklab_receive", self.receive)):
            self.undo.append(replace_item(server.handlers, name, handler))
        for stream in server.stream_comms.values():
            self.stamp(stream, self.note_sent)
        for stream in server.client_comms.values():
            self.stamp(stream, self.note_result)
        for worker in server.workers.values():
            self.note_worker("present", worker)
            if worker.status == Status.paused:
                self.add_event("worker-status-change", worker.address, json.dumps({"status": "paused"}))

    # What the scheduler tells its plugins

    @guarded
    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str = "", **more: Any
    ) -> None:
        now = time()
        row = self.open.get(key)
        if finish == "waiting":
            self.open[key] = [self.graphs, now, *NO_STAGES]
        elif finish in ("queued", "no-worker") and row:
            row[2] = now
        elif finish == "processing":
            row = self.open.setdefault(key, [BEFORE, NAN, *NO_STAGES])
            trigger = self.ended[1] if self.ended[0] == stimulus_id else ""
            worker = self.server.tasks[key].processing_on
            row[3:] = [now, NAN, NAN, trigger, stimulus_id.rpartition("-")[0], worker]
        elif start == "processing" and finish in ("memory", "erred"):
            text = str(key)
            if self.ended[0] != stimulus_id:
                self.ended = (stimulus_id, text)
            self.add_task(key, text, now, finish, more)
            if finish == "erred":
                self.note_killed(key, text, more)
        elif row and finish in ("released", "forgotten", "memory", "erred"):
            self.add_task(key, str(key), now, finish, {})
            self.ended = (stimulus_id, str(key))  # a task that gives itself back is chosen again at once
        if start == "memory" and finish == "released":
            reason = stimulus_id.rpartition("-")[0]
            if reason not in NOT_LOST:
                self.add_event("lost", str(key), reason)

    def add_task(self, key: Any, text: str, now: float, status: str, more: Mapping[str, Any]) -> None:
        row = self.open.pop(key, None) or [BEFORE, NAN, *NO_STAGES]
        graph, waiting, queued, decided, due, departed, trigger, stimulus, worker = row
        spans = more.get("startstops") or ()
        compute = [s for s in spans if s["action"] == "compute"]
        begin, end = (compute[0]["start"], compute[-1]["stop"]) if compute else (NAN, NAN)
        if not compute and worker is not None and worker.status == Status.closed:
            status, begin, end = LOST_ATTEMPT, last_seen_start(key, worker), now
        disk_s = sum(s["stop"] - s["start"] for s in spans if s["action"].startswith("disk"))
        thread, nbytes = more.get("thread") or 0, more.get("nbytes")
        place = more.get("worker") or (worker.address if worker else "")
        self.store.logs["tasks"].add(
            text, place, waiting, queued, decided, due, departed, now, trigger, stimulus,
            int(thread), begin, end, disk_s, NAN if nbytes is None else float(nbytes), more.get("typename") or
            "", status, graph, self.span(key), self.client_of(key) if graph == BEFORE else "",
        )  # fmt: skip

    def client_of(self, key: Any) -> str:
        """Return a client that wants a task, or one that needs it; empty if there is none nearby."""
        task = self.server.tasks.get(key)
        for _ in range(MAX_CHAIN_OF_DEPENDENTS):
            if task is None or task.who_wants:
                break
            task = next(iter(task.dependents), None)
        return "" if task is None or not task.who_wants else str(next(iter(task.who_wants)).client_key)

    def note_killed(self, key: Any, text: str, more: Mapping[str, Any]) -> None:
        """Record that a task is given up because workers died with it, as Dask's KilledWorker says."""
        failures = int(self.server.tasks[key].suspicious)
        if failures > self.server.allowed_failures and not more.get("exception_text"):
            detail = {"worker": str(more.get("worker") or ""), "failures": failures}
            self.add_event("killed-worker", text, json.dumps(detail))

    def span(self, key: Any) -> str:
        """Return the name of a task's span, the outermost first; empty without one."""
        task, extension = self.server.tasks.get(key), self.server.extensions.get("spans")
        span = extension.spans.get(getattr(task.group, "span_id", None)) if task and extension else None
        return "" if span is None or span.name == NO_SPAN else "/".join(span.name)

    @guarded
    def update_graph(self, scheduler: Any, **more: Any) -> None:
        """Number the graph. Dask calls this before the graph's tasks change their states."""
        self.graphs += 1

    @guarded
    def log_event(self, topic: Any, msg: Any) -> None:
        if topic == "stealing":
            for row in steals(msg):
                self.store.logs["steals"].add(time(), *row)
            if msg[0] == "confirm" and (stolen := self.open.get(msg[1])):
                stolen[-1] = self.server.tasks[msg[1]].processing_on
            return
        action = msg.get("action") if isinstance(msg, Mapping) else None
        if action == "update-graph" and topic != "scheduler" and "metrics" in msg:
            self.add_graph(str(topic), msg["metrics"])
        elif topic == "worker-restart-memory" and isinstance(msg, Mapping):
            self.add_restart(msg)
        elif action and (topic == "all" or action == "worker-status-change" or action in OF_CLIENTS):
            detail = {name: value for name, value in msg.items() if isinstance(value, (str, int, float))}
            detail |= {
                name: len(msg[name]) for name in KEY_SETS if isinstance(msg.get(name), (set, list, tuple))
            }
            self.add_event(str(action), str(topic), json.dumps(detail))

    def add_restart(self, message: Mapping[str, Any]) -> None:
        """Record that a nanny ends its worker because of the worker's memory."""
        address = str(message.get("worker"))
        worker = self.server.workers.get(address)
        detail = {"rss": int(message.get("rss", 0)), "limit": int(worker.memory_limit or 0) if worker else 0}
        self.add_event("worker-restart-memory", address, json.dumps(detail))

    @guarded
    def restart(self, scheduler: Any) -> None:
        """Record ``client.restart()``, which forgets all tasks before it ends the workers."""
        self.add_event("client-restart", "all", "")
        for key in list(islice(self.open, MAX_LOG_ROWS)):
            self.add_task(key, str(key), NAN, "forgotten", {})
        self.open.clear()

    def add_graph(self, client: str, metrics: Mapping[str, float]) -> None:
        """Add a graph whose states have just been made; some versions of Dask report durations below zero."""
        stages = ("materialization", "ordering", "state_initialization")
        spent = [abs(metrics.get(f"{stage}_duration_seconds", NAN)) for stage in stages]
        received = metrics.get("start_timestamp_seconds", time())
        tasks = int(metrics.get("tasks", 0))
        self.store.logs["graphs"].add(self.graphs, received, client, tasks, *spent)

    @guarded
    def add_worker(self, scheduler: Any, worker: str) -> None:
        self.note_worker("joined", scheduler.workers[worker])
        stream = scheduler.stream_comms[worker]
        start = stream.start

        def started(comm: Any) -> None:
            restore()
            start(comm)
            self.stamp(stream, self.note_sent)

        restore = replace(stream, "start", started)
        self.undo.append(restore)

    @guarded
    def remove_worker(self, scheduler: Any, worker: str, **more: Any) -> None:
        self.store.logs["workers"].add(time(), worker, "", 0, "", "left")
        self.heartbeats.pop(worker, None)

    @guarded
    def add_client(self, scheduler: Any, client: str) -> None:
        self.add_event("add-client", client, "")

    def remove_client(self, scheduler: Any, client: str) -> None:
        if client and client == self.owner.client:
            self.abandon()

    async def take(self, record: str, summary: bool = False) -> dict[str, Any] | None:
        records = await super().take(record, summary)
        if records is None:
            return None
        reply = {"workers": list(self.server.workers)} | records
        if self.departed:
            reply["departed"] = self.departed.popleft()
            reply["more"] = reply["more"] or bool(self.departed)
        return reply

    async def receive(self, records: dict[str, Any]) -> dict[str, str]:
        """Keep the last records of a worker that closes: a handler of the scheduler."""
        self.departed.append(records)
        return {"status": "OK"}

    # What leaves the scheduler

    def note_sent(self, message: dict[str, Any], now: float, due: float) -> None:
        if message.get("op") == "compute-task" and (row := self.open.get(message["key"])):
            row[4:6] = [due or NAN, now]

    def note_result(self, message: dict[str, Any], now: float, due: float) -> None:
        if message.get("op") == "key-in-memory":
            self.store.logs["results"].add(now, "", str(message["key"]))

    # What is looked at

    def sample(self, now: float) -> None:
        super().sample(now)
        scheduler, queued = self.server, len(self.server.queued)
        for stream in scheduler.client_comms.values():
            self.stamp(stream, self.note_result)
        if len(scheduler.workers) * 1000 / TICK_MS <= 400:  # rows per second
            for worker in scheduler.workers.values():
                tasks = len(worker.processing)
                self.store.logs["load"].add(now, worker.address, tasks, float(worker.occupancy), queued)
                self.add_memory(worker)

    @guarded
    def add_memory(self, worker: Any) -> None:
        """Record what a worker's last heartbeat says of its memory, once, at the time of the heartbeat."""
        metrics = worker.metrics
        if not metrics or self.heartbeats.get(worker.address) is metrics:
            return
        self.heartbeats[worker.address] = metrics
        process, managed = float(metrics["memory"]), float(metrics["managed_bytes"])
        in_memory = managed - float(metrics["spilled_bytes"]["memory"])  # Dask counts what it spilled, too
        spilled, limit = float(metrics["spilled_bytes"]["disk"]), float(worker.memory_limit or NAN)
        row = (worker.last_seen, worker.address, process, max(0.0, in_memory), spilled, limit)
        self.store.logs["memory"].add(*row)

    def note_worker(self, kind: str, worker: Any) -> None:
        row = (worker.address, str(worker.name), int(worker.nthreads), str(worker.host), kind)
        self.store.logs["workers"].add(time(), *row)

    def add_event(self, kind: str, subject: str, detail: str) -> None:
        self.store.logs["events"].add(time(), kind, subject, without_credentials(detail))

    def counters(self) -> Mapping[Any, float]:
        return dict(self.server.cumulative_worker_metrics)

    @guarded
    def summarise(self) -> None:
        super().summarise()
        scheduler, log = self.server, self.store.logs["bandwidths"]
        log.add("", "", float(scheduler.bandwidth))
        for (receiver, sender), rate in scheduler.bandwidth_workers.items():
            log.add(receiver, sender, float(rate))
        for key in list(islice(self.open, MAX_LOG_ROWS)):  # what has not ended yet
            self.add_task(key, str(key), NAN, "unfinished", {})

    # The end

    def abandon(self) -> None:
        self.life.move(RecorderEvent.ABANDON)
        self.server.loop.add_callback(self.close_everywhere)

    async def end(self, record: str) -> dict[str, Any] | None:
        """Detach from the whole cluster if this record is the owner's: a handler of the scheduler."""
        return await self.close_everywhere() if record == self.owner.record else None

    async def close_everywhere(self) -> dict[str, Any]:
        """Detach from the whole cluster."""
        self.detach()
        self.server.plugins.pop(NAME, None)
        if NAME in self.server.worker_plugins:
            await self.server.unregister_worker_plugin(comm=None, name=NAME)
        return {"status": "OK"}


def last_seen_start(key: Any, worker: Any) -> float:
    """Return when a task began to run, as its worker's last heartbeat says; NaN if it did not run then."""
    ran_s = {task.key: seconds for task, seconds in worker.executing.items()}.get(key, NAN)
    return float(worker.last_seen - ran_s)


def steals(message: Any) -> list[tuple[str, str, str, str]]:
    """Return kind, key, victim and thief of what stealing logs: requests in lots, all else one by one."""
    kind = message[0]
    if kind == "request":
        return [(kind, str(key), victim, thief) for _, _, key, _, victim, _, thief, _ in message[1]]
    if kind in ("confirm", "already-computing") and len(message) >= 5:
        return [(kind, str(message[1]), message[3], message[4])]
    return [(str(kind), "", "", "")]
