"""A preload of the lab's scheduler and workers: keeps what Dask knows of a run, and hands it over on request.

It stands alone (the standard library and Dask), because the lab copies this one file to its machines; a
running cluster is recorded by the package ``recorder`` instead. Dask's own logs hold most of what is
needed, at no cost but memory, if they are long enough. They are lengthened here, before anything happens,
and not by ``distributed.admin.low-level-log-length``, which would also keep the payload of every message.
What they do not hold is stamped: when a batch of messages leaves, how long an event loop was busy, how a
fetch was spent. Dask's correction of the workers' clocks is switched off, and its estimates are kept.

``server.recorder.take()`` returns all that was recorded since the last call, as plain lists, and forgets it.
Times are seconds since 1970 by the process's own clock.
"""

# mypy: disable-error-code="no-untyped-call,attr-defined,method-assign"
from __future__ import annotations

import asyncio
import contextlib
import platform
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from selectors import EVENT_READ
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta
from distributed.batched import BatchedSend
from distributed.diagnostics.task_stream import TaskStreamPlugin
from distributed.metrics import context_meter, time
from distributed.profile import merge
from tornado.ioloop import PeriodicCallback

FORM = 1  # of what is handed over; lab/dasklab/records/preloaded.py reads it
LONGEST = 1_000_000  # entries of each log between two calls of take; what is lost beyond is counted
SAMPLED_MS = 100  # how often processing and occupancy are sampled
PAUSE_S = 0.0001  # an event loop that waits for less than this is not idle
SHORT_S = 0.0001  # shorter busy intervals are not kept
LEAST_WAITED_S = 0.008  # two ticks of the kernel's clock, which says how long data waited: surely one
INTERNET = (socket.AF_INET, socket.AF_INET6)
ESTABLISHED = 1  # a state of a connection in the kernel's struct tcp_info
LAST_DATA_AT = 52  # where in it tcpi_last_data_recv is
STAMPED = ("compute-task", "task-finished", "task-erred")  # ops whose departure is kept
STATES = ("waiting", "queued", "no-worker", "processing", "memory", "erred", "released")
READY = ("constrained", "ready", "executing", "long-running")

Row = tuple[Any, ...]


class BoundedLog(deque[Any]):
    """A log of bounded length that is emptied by whoever reads it."""

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries, maxlen=LONGEST)

    def take(self) -> list[Any]:
        entries = list(self)
        self.clear()
        return entries


class BusyLoop:
    """When an event loop was busy: between two of its waits, or kept from running after a wait was over.

    A wait that lasts longer than requested (another thread held the interpreter, or other processes the CPU)
    counts as busy from when it should have ended; so does one that was ended by data that had come before.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, handlers: Mapping[int, Any]) -> None:
        self.busy = BoundedLog()
        self.begin = time()
        self.handlers = handlers  # tornado's: for each file descriptor itself and its stream's method
        selector = getattr(loop, "_selector", None)  # uvloop has none
        if selector is not None:
            self.select = selector.select
            selector.select = self.watched

    def watched(self, timeout: float | None = None) -> Any:
        """The selector's ``select``, between two stamps."""
        begin = time()
        ready = self.select(timeout)
        end = time()
        woken = timeout is None or (ready and timeout > 0)
        due = end if woken else begin + max(timeout or 0, 0)
        if woken and end - begin > LEAST_WAITED_S:
            due -= min(self._data_waited(ready), end - begin)
        if min(due, end) - begin > PAUSE_S:
            if begin - self.begin > SHORT_S:
                self.busy.append((round(self.begin, 6), round(begin, 6)))
            self.begin = due if end - due > PAUSE_S else end
        return ready

    def _data_waited(self, ready: list[tuple[Any, int]]) -> float:
        """For how many seconds the data that ended a wait had been in the kernel, if the kernel knows."""
        methods = [self.handlers.get(key.fd, (None, None))[1] for key, events in ready if events & EVENT_READ]
        streams = [getattr(method, "__self__", None) for method in methods]
        sockets = [s for stream in streams if (s := getattr(stream, "socket", None))]
        longest = max(map(_since_data, sockets), default=0.0)
        return longest if longest >= LEAST_WAITED_S else 0.0


def _since_data(connection: socket.socket) -> float:
    """Seconds since a connection's last data came; its end is not data."""
    is_internet = connection.family in INTERNET
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104) if is_internet else b""
    if not info or info[0] != ESTABLISHED:
        return 0.0
    return float(struct.unpack_from("I", info, LAST_DATA_AT)[0]) / 1000


class Departures:
    """When batches of messages left, by the tasks in them, and until when Dask's timer held each back."""

    def __init__(self) -> None:
        self.log = BoundedLog()
        start = BatchedSend.start

        def stamped(batched: Any, comm: Any) -> None:
            comm.write = partial(self.write, comm.write, comm.peer_address, batched, [0.0])
            start(batched, comm)

        BatchedSend.start = stamped

    def write(
        self, write: Callable[..., Any], peer: str, batched: Any, due: list[float], msg: Any, **options: Any
    ) -> Any:
        """A comm's ``write``, after a stamp; ``due[0]`` is when it may send again."""
        now, since = time(), due[0]
        self.log.extend((now, peer, op["key"], op["op"], since) for op in msg if op.get("op") in STAMPED)
        due[0] = now + batched.interval
        return write(msg, **options)


class ProcessRecords:
    """What scheduler and workers have in common."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.loop = BusyLoop(server.io_loop.asyncio_loop, server.io_loop.handlers)
        self.departures = Departures()
        self.totals: dict[Any, float] = {}
        self.cpu = (0.0, 0.0)

    def common(self) -> dict[str, Any]:
        """Return the tables that every process has."""
        log = self.departures.log.take()
        departed = [(round(now, 6), peer, str(key), op, round(due, 6)) for now, peer, key, op, due in log]
        cpu_s, waited_s = _scheduled()
        versions = {"python": platform.python_version(), "distributed": distributed.__version__}
        tables = {
            "form": FORM,
            "now": time(),
            "address": self.server.address,
            "versions": versions,
            "loop": type(self.server.io_loop.asyncio_loop).__module__.partition(".")[0],
            "config": dask.config.get("distributed"),
            "cpu": [round(cpu_s - self.cpu[0], 6), round(waited_s - self.cpu[1], 6)],
            "spells": self.loop.busy.take(),
            "sent": departed,
        }
        self.cpu = (cpu_s, waited_s)
        return tables

    def since(self, totals: dict[Any, float]) -> list[Row]:
        """Return by how much counters rose since the last call."""
        rows = []
        for name, total in totals.items():
            labels = [str(part) for part in name] if isinstance(name, tuple) else [str(name)]
            if (rise := total - self.totals.get(name, 0.0)) != 0:
                rows.append(("/".join(labels), rise))
        self.totals = dict(totals)
        return rows


class SchedulerRecords(ProcessRecords):
    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        scheduler.transition_log = BoundedLog(scheduler.transition_log)
        self.stream = TaskStreamPlugin(scheduler, maxlen=LONGEST)
        scheduler.add_plugin(self.stream)
        self.steals = BoundedLog()
        scheduler._broker._topics["stealing"].events = self.steals
        self.graphs = BoundedLog()
        scheduler._broker._topics["scheduler"].events = self.graphs
        self.load = BoundedLog()
        self.sampling = PeriodicCallback(self.sample, SAMPLED_MS)
        self.sampling.start()

    def sample(self) -> None:
        now, scheduler = round(time(), 6), self.server
        queued = len(scheduler.queued)
        for worker in scheduler.workers.values():
            self.load.append((now, worker.address, len(worker.processing), worker.occupancy, queued))

    def take(self) -> dict[str, Any]:
        """Return all that was recorded since the last call."""
        scheduler, stream = self.server, list(self.stream.buffer)
        self.stream.buffer.clear()
        log = scheduler.transition_log.take()
        stealing = scheduler.extensions.get("stealing")
        return self.common() | {
            "lost": int(len(log) == LONGEST or len(stream) == LONGEST),
            "workers": [(w.address, str(w.name), w.nthreads) for w in scheduler.workers.values()],
            "tasks": [_task(row) for row in stream],
            "transitions": [
                (str(key), start, finish, stimulus, round(when, 6))
                for key, start, finish, _, stimulus, when in log
                if finish in STATES
            ],
            "graphs": [row for _, event in self.graphs.take() for row in _graph(event)],
            "load": self.load.take(),
            "steals": [row for when, event in self.steals.take() for row in _steal(when, event)],
            "steal_totals": _plain(stealing.metrics) if stealing else {},
            "bandwidth": scheduler.bandwidth,
            "bandwidth_workers": [(*pair, rate) for pair, rate in scheduler.bandwidth_workers.items()],
            "bandwidth_types": list(scheduler.bandwidth_types.items()),
            "metrics": self.since(scheduler.cumulative_worker_metrics),
        }


class WorkerRecords(ProcessRecords):
    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        worker.state.log, worker.state.stimulus_log = (
            BoundedLog(worker.state.log),
            BoundedLog(worker.state.stimulus_log),
        )
        self.delays, self.fetches, self.served = BoundedLog(), BoundedLog(), BoundedLog()
        self.profiled = 0.0
        _keep_own_clock(worker, self.delays)
        distributed.worker.get_data_from_worker = self.fetch(distributed.worker.get_data_from_worker)
        worker.handlers["get_data"] = self.serve(worker.handlers["get_data"])

    def fetch(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``get_data_from_worker`` in two stamps; Dask meters how much of it was deserialising."""

        async def fetched(rpc: Any, keys: Any, worker: str, **options: Any) -> Any:
            start, spent = time(), [0.0]
            with context_meter.add_callback(partial(_add, spent), allow_offload=True):
                response = await get(rpc, keys, worker, **options)
            row = (start, time(), worker, [str(key) for key in keys], str(response["status"]), spent[0])
            self.fetches.append(row)
            return response

        return fetched

    def serve(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the handler of ``get_data`` in two stamps."""

        async def get_data(comm: Any, keys: Any, who: Any = None, **options: Any) -> Any:
            start, spent = time(), [0.0]
            with context_meter.add_callback(partial(_add, spent), allow_offload=True):
                response = await get(comm, keys=keys, who=who, **options)
            self.served.append((start, time(), str(who), [str(key) for key in keys], spent[0]))
            return response

        return get_data

    def take(self) -> dict[str, Any]:
        """Return all that was recorded since the last call."""
        log, events = self.server.state.log.take(), self.server.state.stimulus_log.take()
        return self.common() | {
            "lost": int(LONGEST in (len(log), len(events))),
            "arrived": [_arrived(event) for event in events if type(event).__name__ == "ComputeTaskEvent"],
            "done": [
                (str(event.key), round(event.handled, 6), event.stimulus_id)
                for event in events
                if type(event).__name__ in ("ExecuteSuccessEvent", "ExecuteFailureEvent")
            ],
            "states": [
                (str(row[0]), row[3], round(row[6], 6)) for row in log if len(row) == 7 and row[3] in READY
            ],
            "delays": self.delays.take(),
            "fetches": self.fetches.take(),
            "served": self.served.take(),
            "metrics": self.since({k: v for k, v in self.server.digests_total.items() if type(k) is tuple}),
            "profile": self.profile(),
        }

    def profile(self) -> list[Row]:
        """What threads were doing, if Dask samples them: each stack with its seconds."""
        if not dask.config.get("distributed.worker.profile.enabled"):
            return []
        self.server.cycle_profile()
        since, self.profiled = self.profiled, time()
        tree = merge(*(sample for when, sample in self.server.profile_history if when > since))
        interval_s = parse_timedelta(dask.config.get("distributed.worker.profile.interval"), default="ms")
        return [(stack, round(count * interval_s, 6)) for stack, count in _stacks(tree, [])]


def _scheduled() -> tuple[float, float]:
    """Seconds that the threads of this process had a CPU, and that they waited for one."""
    total = [0.0, 0.0]
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            ran, waited, _ = map(int, thread.read_text(encoding="utf-8").split())
            total = [total[0] + ran / 1e9, total[1] + waited / 1e9]
    return total[0], total[1]


def _stacks(node: dict[str, Any], above: list[str]) -> Iterator[tuple[list[str], int]]:
    """Each stack of a tree of samples that was sampled itself, outermost frame first, and how often."""
    inner = 0
    for child in node["children"].values():
        about = child["description"]
        inner += child["count"]
        yield from _stacks(child, [*above, f"{about['name']} ({about['filename']}:{about['line_number']})"])
    if above and node["count"] > inner:
        yield above, node["count"] - inner


def _task(row: dict[str, Any]) -> Row:
    steps = [(step["action"], step["start"], step["stop"]) for step in row["startstops"]]
    size, kind = row.get("nbytes"), str(row.get("typename", ""))
    return str(row["key"]), row["worker"], row.get("thread"), size, kind, str(row.get("status")), steps


def _graph(event: Any) -> list[Row]:
    """How long a graph took; some versions of Dask report these durations below zero."""
    if event.get("action") != "update-graph" or event.get("status") != "OK":
        return []
    metrics = event["metrics"]
    stages = ("materialization", "ordering", "state_initialization")
    spent = (abs(metrics[f"{stage}_duration_seconds"]) for stage in stages)
    return [(metrics["start_timestamp_seconds"], metrics["tasks"], *spent)]


def _arrived(event: Any) -> Row:
    needs = [(str(key), event.nbytes.get(key), list(who)) for key, who in event.who_has.items()]
    return str(event.key), round(event.handled, 6), needs


def _steal(when: float, event: Any) -> list[Row]:
    """What stealing logs: requests in lots, all else one by one; key, victim and thief where named."""
    kind = event[0]
    if kind == "request":
        return [(when, kind, str(key), victim, thief) for _, _, key, _, victim, _, thief, _ in event[1]]
    if kind in ("confirm", "already-computing") and len(event) >= 5:
        return [(when, kind, str(event[1]), event[3], event[4])]
    return [(when, str(kind), "", "", "")]


def _plain(metrics: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {name: {str(level): float(n) for level, n in counts.items()} for name, counts in metrics.items()}


def _add(spent: list[float], label: Any, value: float, unit: str) -> None:
    activity = label[-1] if isinstance(label, tuple) else label
    if unit == "seconds" and activity in ("serialize", "deserialize", "compress", "decompress"):
        spent[0] += value


def _keep_own_clock(worker: Any, delays: BoundedLog) -> None:
    """Leave this worker's stamps on its own clock, and log Dask's estimates of its delay."""
    vars(worker).pop("scheduler_delay", None)
    type(worker).scheduler_delay = property(
        lambda _: 0.0, lambda _, delay: delays.append((round(time(), 6), delay))
    )


def dask_setup(server: Any) -> None:
    """Dask calls this before the process takes part in a cluster."""
    kind = SchedulerRecords if hasattr(server, "transition_log") else WorkerRecords
    try:
        server.recorder = kind(server)
    except (AttributeError, KeyError) as error:  # a version of Dask with other internals
        sys.stderr.write(f"dasklab: this Dask cannot be recorded ({error}); runs are timed all the same\n")
