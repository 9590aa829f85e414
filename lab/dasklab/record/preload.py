"""A preload of scheduler and workers: keeps what Dask knows of a run, and hands it over when asked.

Stands alone (the standard library and Dask), because it runs on the guests. Dask's own logs hold most of
what is wanted, for nothing but memory, if they are long enough; they are lengthened here, before anything
happens, and not by ``distributed.admin.low-level-log-length``, which would also keep the payload of every
message. What they do not hold is stamped: when a batch of messages leaves, how long an event loop was busy,
how a fetch was spent. Dask's correction of the workers' clocks is switched off and what it would have been
is kept.

``server.inside.take()`` returns all that was recorded since it was called last, as plain lists, and forgets
it. Times are seconds since 1970 by the process's own clock.
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

FORM = 1  # of what is handed over; lab/dasklab/record/tables.py reads this one
LONGEST = 1_000_000  # entries of each log between two takes; what is lost beyond is counted
SAMPLED_MS = 100  # how often processing and occupancy are looked at
PAUSE_S = 0.0001  # an event loop that waits for less than this is not idle
SPELL_S = 0.0001  # shorter spells of work are not kept
LAIN_S = 0.008  # two ticks of the kernel's clock, which says how long data has lain: it is surely one
INTERNET = (socket.AF_INET, socket.AF_INET6)
ESTABLISHED = 1  # a state of a connection in the kernel's struct tcp_info
LAST_DATA_AT = 52  # where in it tcpi_last_data_recv is
STAMPED = ("compute-task", "task-finished", "task-erred")  # ops whose departure is kept
STATES = ("waiting", "queued", "no-worker", "processing", "memory", "erred", "released")
READY = ("constrained", "ready", "executing", "long-running")

Row = tuple[Any, ...]


class Log(deque[Any]):
    """A log of bounded length that is emptied by whoever reads it."""

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries, maxlen=LONGEST)

    def take(self) -> list[Any]:
        """All entries; forgets them."""
        entries = list(self)
        self.clear()
        return entries


class Loop:
    """When an event loop was busy: between two of its waits, or kept from running after one was over.

    A wait that lasts longer than was asked for (another thread held the interpreter, or other processes the
    CPU) counts as busy from when it should have ended; so does one that data ended which had come before.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, handlers: Mapping[int, Any]) -> None:
        self.spells = Log()
        self.began = time()
        self.handlers = handlers  # tornado's: of each file descriptor itself and its stream's method
        selector = getattr(loop, "_selector", None)  # uvloop has none
        if selector is not None:
            self.select = selector.select
            selector.select = self.watched

    def watched(self, timeout: float | None = None) -> Any:
        """The selector's ``select``, between two stamps."""
        called = time()
        ready = self.select(timeout)
        returned = time()
        woken = timeout is None or (ready and timeout > 0)
        due = returned if woken else called + max(timeout or 0, 0)
        if woken and returned - called > LAIN_S:
            due -= min(self._lain(ready), returned - called)
        if min(due, returned) - called > PAUSE_S:
            if called - self.began > SPELL_S:
                self.spells.append((round(self.began, 6), round(called, 6)))
            self.began = due if returned - due > PAUSE_S else returned
        return ready

    def _lain(self, ready: list[tuple[Any, int]]) -> float:
        """For how many seconds the data that ended a wait lay in the kernel, if the kernel can tell."""
        called = [self.handlers.get(key.fd, (None, None))[1] for key, events in ready if events & EVENT_READ]
        streams = [getattr(method, "__self__", None) for method in called]
        sockets = [one for stream in streams if (one := getattr(stream, "socket", None))]
        longest = max(map(_since_data, sockets), default=0.0)
        return longest if longest >= LAIN_S else 0.0


def _since_data(one: socket.socket) -> float:
    """Seconds since a connection's last data came; its end is no data."""
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104) if one.family in INTERNET else b""
    if not info or info[0] != ESTABLISHED:
        return 0.0
    return float(struct.unpack_from("I", info, LAST_DATA_AT)[0]) / 1000


class Sent:
    """When batches of messages left, by the tasks in them, and until when Dask's timer held each back."""

    def __init__(self) -> None:
        self.log = Log()
        start = BatchedSend.start

        def stamped(batched: Any, comm: Any) -> None:
            comm.write = partial(self.write, comm.write, comm.peer_address, batched, [0.0])
            start(batched, comm)

        BatchedSend.start = stamped

    def write(
        self, write: Callable[..., Any], peer: str, batched: Any, due: list[float], msg: Any, **options: Any
    ) -> Any:
        """A comm's ``write``, after a stamp; ``due`` is when it was free to send again."""
        now = time()
        held = due[0]
        self.log.extend((now, peer, op["key"], op["op"], held) for op in msg if op.get("op") in STAMPED)
        due[0] = now + batched.interval
        return write(msg, **options)


class Recorder:
    """What scheduler and workers have in common."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.loop = Loop(server.io_loop.asyncio_loop, server.io_loop.handlers)
        self.sent = Sent()
        self.taken: dict[Any, float] = {}
        self.cpu = (0.0, 0.0)

    def common(self) -> dict[str, Any]:
        """The tables that every process has."""
        log = self.sent.log.take()
        sent = [(round(now, 6), peer, str(key), op, round(due, 6)) for now, peer, key, op, due in log]
        cpu_s, waited_s = _scheduled()
        versions = {"python": platform.python_version(), "distributed": distributed.__version__}
        found = {
            "form": FORM,
            "now": time(),
            "address": self.server.address,
            "versions": versions,
            "loop": type(self.server.io_loop.asyncio_loop).__module__.partition(".")[0],
            "config": dask.config.get("distributed"),
            "cpu": [round(cpu_s - self.cpu[0], 6), round(waited_s - self.cpu[1], 6)],
            "spells": self.loop.spells.take(),
            "sent": sent,
        }
        self.cpu = (cpu_s, waited_s)
        return found

    def since(self, totals: dict[Any, float]) -> list[Row]:
        """By how much counters rose since they were asked for last."""
        rows = []
        for name, total in totals.items():
            labels = [str(part) for part in name] if isinstance(name, tuple) else [str(name)]
            if (rise := total - self.taken.get(name, 0.0)) != 0:
                rows.append(("/".join(labels), rise))
        self.taken = dict(totals)
        return rows


class OfScheduler(Recorder):
    """The scheduler's records."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        scheduler.transition_log = Log(scheduler.transition_log)
        self.stream = TaskStreamPlugin(scheduler, maxlen=LONGEST)
        scheduler.add_plugin(self.stream)
        self.steals = Log()
        scheduler._broker._topics["stealing"].events = self.steals
        self.graphs = Log()
        scheduler._broker._topics["scheduler"].events = self.graphs
        self.load = Log()
        self.sampling = PeriodicCallback(self.sample, SAMPLED_MS)
        self.sampling.start()

    def sample(self) -> None:
        """One look at every worker."""
        now, scheduler = round(time(), 6), self.server
        queued = len(scheduler.queued)
        for worker in scheduler.workers.values():
            self.load.append((now, worker.address, len(worker.processing), worker.occupancy, queued))

    def take(self) -> dict[str, Any]:
        """All that was recorded since it was asked for last."""
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
            "graphs": [row for _, said in self.graphs.take() for row in _graph(said)],
            "load": self.load.take(),
            "steals": [row for when, said in self.steals.take() for row in _steal(when, said)],
            "steal_totals": _plain(stealing.metrics) if stealing else {},
            "bandwidth": scheduler.bandwidth,
            "bandwidth_workers": [(*pair, rate) for pair, rate in scheduler.bandwidth_workers.items()],
            "bandwidth_types": list(scheduler.bandwidth_types.items()),
            "metrics": self.since(scheduler.cumulative_worker_metrics),
        }


class OfWorker(Recorder):
    """A worker's records."""

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        worker.state.log, worker.state.stimulus_log = Log(worker.state.log), Log(worker.state.stimulus_log)
        self.delays, self.fetches, self.served = Log(), Log(), Log()
        self.profiled = 0.0
        _keep_own_clock(worker, self.delays)
        distributed.worker.get_data_from_worker = self.fetch(distributed.worker.get_data_from_worker)
        worker.handlers["get_data"] = self.serve(worker.handlers["get_data"])

    def fetch(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """``get_data_from_worker``, between two stamps; Dask meters how much of it was deserialising."""

        async def fetched(rpc: Any, keys: Any, worker: str, **options: Any) -> Any:
            start, spent = time(), [0.0]
            with context_meter.add_callback(partial(_add, spent), allow_offload=True):
                said = await get(rpc, keys, worker, **options)
            row = (start, time(), worker, [str(key) for key in keys], str(said["status"]), spent[0])
            self.fetches.append(row)
            return said

        return fetched

    def serve(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """The handler of ``get_data``, between two stamps."""

        async def get_data(comm: Any, keys: Any, who: Any = None, **options: Any) -> Any:
            start, spent = time(), [0.0]
            with context_meter.add_callback(partial(_add, spent), allow_offload=True):
                said = await get(comm, keys=keys, who=who, **options)
            self.served.append((start, time(), str(who), [str(key) for key in keys], spent[0]))
            return said

        return get_data

    def take(self) -> dict[str, Any]:
        """All that was recorded since it was asked for last."""
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
        """What threads were found doing, if Dask looks at all: each stack with its seconds."""
        if not dask.config.get("distributed.worker.profile.enabled"):
            return []
        self.server.cycle_profile()
        since, self.profiled = self.profiled, time()
        some = merge(*(tree for when, tree in self.server.profile_history if when > since))
        each_s = parse_timedelta(dask.config.get("distributed.worker.profile.interval"), default="ms")
        return [(stack, round(count * each_s, 6)) for stack, count in _stacks(some, [])]


def _scheduled() -> tuple[float, float]:
    """Seconds that the threads of this process had a CPU, and that they waited for one."""
    found = [0.0, 0.0]
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            ran, waited, _ = map(int, thread.read_text().split())
            found = [found[0] + ran / 1e9, found[1] + waited / 1e9]
    return found[0], found[1]


def _stacks(node: dict[str, Any], above: list[str]) -> Iterator[tuple[list[str], int]]:
    """Each stack of a tree of samples that was seen itself, outermost frame first, and how often."""
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


def _graph(said: Any) -> list[Row]:
    """What an update of the graph took; some versions of Dask tell these durations below zero."""
    if said.get("action") != "update-graph" or said.get("status") != "OK":
        return []
    metrics = said["metrics"]
    stages = ("materialization", "ordering", "state_initialization")
    spent = (abs(metrics[f"{stage}_duration_seconds"]) for stage in stages)
    return [(metrics["start_timestamp_seconds"], metrics["tasks"], *spent)]


def _arrived(event: Any) -> Row:
    needs = [(str(key), event.nbytes.get(key), list(who)) for key, who in event.who_has.items()]
    return str(event.key), round(event.handled, 6), needs


def _steal(when: float, said: Any) -> list[Row]:
    """What stealing tells: of requests in lots, of all else one by one; key, victim and thief where named."""
    kind = said[0]
    if kind == "request":
        return [(when, kind, str(key), victim, thief) for _, _, key, _, victim, _, thief, _ in said[1]]
    if kind in ("confirm", "already-computing") and len(said) >= 5:
        return [(when, kind, str(said[1]), said[3], said[4])]
    return [(when, str(kind), "", "", "")]


def _plain(metrics: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {name: {str(level): float(n) for level, n in counts.items()} for name, counts in metrics.items()}


def _add(spent: list[float], label: Any, value: float, unit: str) -> None:
    activity = label[-1] if isinstance(label, tuple) else label
    if unit == "seconds" and activity in ("serialize", "deserialize", "compress", "decompress"):
        spent[0] += value


def _keep_own_clock(worker: Any, delays: Log) -> None:
    """Stamps of this worker stay those of its clock; Dask's estimates of its delay are kept aside."""
    vars(worker).pop("scheduler_delay", None)
    type(worker).scheduler_delay = property(
        lambda _: 0.0, lambda _, delay: delays.append((round(time(), 6), delay))
    )


def dask_setup(server: Any) -> None:
    """Dask calls this before the process takes part in a cluster."""
    kind = OfScheduler if hasattr(server, "transition_log") else OfWorker
    try:
        server.inside = kind(server)
    except (AttributeError, KeyError) as error:  # another Dask than those this was written for
        sys.stderr.write(f"dasklab: this Dask cannot be recorded ({error}); runs are timed all the same\n")
