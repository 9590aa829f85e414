"""A trial in Perfetto's protobuf format: threads, transfers and event loops, with arrows for moved results.

What is shown of each process:

* of each thread the tasks, each with what held it up while it ran inside of it, and the waits between them;
* transfers to a worker, each with its stages inside of it; those that overlap lie on several tracks;
* when its event loop was busy, and how many tasks the worker was assigned.

Arrows lead from the task that made a result to the transfer that brought it to another worker, and from there
to the task that needed it. Above the processes are the critical path and, of captured repeats, the packets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from dasklab import atomic
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.assign.transfers import fetch_stages
from dasklab.breakdown.model.arrays import NONE
from dasklab.breakdown.model.causes import CAUSES, COMPUTE
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.lanes import assign_lanes
from dasklab.breakdown.model.repeat import SCHEDULER, Repeat
from dasklab.breakdown.show.explain import Explained
from dasklab.breakdown.show.trace.moved_results import moved_results
from dasklab.breakdown.show.trace.perfetto_writer import NO_ARGUMENTS, Arguments, TraceWriter
from dasklab.breakdown.show.trace.task_slices import is_running, task_slices
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.results.recording import Recording
from dasklab.terminal import counted

SUFFIX = ".pftrace"
TASK, TRANSFER, LOOP, MESSAGE = "task", "transfer", "event loop", "message"
"""Categories of slices, beside the groups of causes."""
MAX_NAMED_KEYS = 20
PATH = "critical path"
Numbers = defaultdict[int, list[int]]  # a task or a fetch -> arrows


def write(explained: Explained, path: Path) -> None:
    """Write the timed repeats to one file."""
    capture = explained.trial.capture if explained.captured else None
    zero = min([*map(_earliest, explained.timed), *_begin(capture)], default=0.0)
    with atomic.replaced(path) as draft, draft.open("wb") as file:
        writer = TraceWriter(file)
        writer.metadata(_metadata(explained))
        hosts = _Hosts(writer, explained.timed)
        numbers = count(1)
        for repeat in explained.timed:
            _RepeatTrace(repeat, zero, hosts, numbers).write()
        if capture:
            _packets(writer, capture, zero)


def _earliest(repeat: Repeat) -> float:
    loads = [load.time for load in repeat.load.values()]
    columns = (np.array([repeat.start]), repeat.busy.start, repeat.fetches.start, *loads)
    return min(float(column.min()) for column in columns if len(column))


def _begin(capture: Recording | None) -> Iterator[float]:
    if capture:
        yield from (row["time_ns"] / 1e9 for row in capture.rows("messages"))
        yield from (float(row["second"]) for row in capture.rows("series"))


def _metadata(explained: Explained) -> dict[str, str]:
    """Return what the trace is of: folder, experiment, cell, versions, times of the repeats."""
    values = {"written by": "dasklab explain", "folder": explained.trial.name}
    if requested := explained.trial.read(RequestedTrial):
        values |= {
            "experiment": requested.experiment,
            "cell": requested.cell,
            "workload": requested.workload.name,
        }
    if timings := explained.trial.timings:
        values |= {name: str(version) for name, version in timings.versions.items()}
    values["repeats"] = ", ".join(f"{repeat.number}: {repeat.makespan:.3f} s" for repeat in explained.timed)
    return values


class _Hosts:
    """The tracks of all processes; the repeats of a trial share them."""

    def __init__(self, writer: TraceWriter, repeats: Sequence[Repeat]) -> None:
        self.writer = writer
        path = writer.process(PATH)
        self.path, self.repeats = writer.thread(path, PATH), writer.thread(path, "repeats")
        self._tracks: dict[tuple[str, str, int], int] = {}
        threads = {name: number for repeat in repeats for name, number in repeat.threads.items()}
        labels = {SCHEDULER: ""} | {name: counted(number, "thread") for name, number in threads.items()}
        self._processes = {name: writer.process(name, label) for name, label in labels.items()}

    def thread(self, host: str, number: int) -> int:
        return self._track(host, "thread", number, lambda own: self.writer.thread(own, f"thread {number}"))

    def loop(self, host: str) -> int:
        return self._track(host, LOOP, 0, lambda own: self.writer.thread(own, LOOP))

    def transfers(self, host: str, lane: int) -> int:
        return self._track(host, TRANSFER, lane, lambda own: self.writer.track(own, "transfers to it"))

    def assigned(self, host: str) -> int:
        name = "tasks assigned"
        return self._track(host, name, 0, lambda own: self.writer.counter(own, name, "tasks"))

    def _track(self, host: str, kind: str, number: int, add: Callable[[int], int]) -> int:
        """Return a track of a host, which is added to its process when it is needed for the first time."""
        key = host, kind, number
        if key not in self._tracks:
            if host not in self._processes:  # the client has only an event loop
                self._processes[host] = self.writer.process(host)
            self._tracks[key] = add(self._processes[host])
        return self._tracks[key]


class _RepeatTrace:
    """Writes one repeat. ``zero`` is the trace's origin; ``numbers`` gives each arrow a number of its own."""

    def __init__(self, repeat: Repeat, zero: float, hosts: _Hosts, numbers: Iterator[int]) -> None:
        self.repeat, self.zero, self.hosts, self.writer = repeat, zero, hosts, hosts.writer
        self.from_task, self.to_fetch, self.from_fetch, self.to_task = (Numbers(list) for _ in range(4))
        self.intervals = break_down(repeat)
        self.tasks = task_slices(repeat, self.intervals)
        ran = set(self.tasks.task.tolist())
        moved = moved_results(repeat)
        for task, fetch in moved.task_to_fetch:
            if task in ran:
                self._connect(self.from_task[task], self.to_fetch[fetch], next(numbers))
        for fetch, task in moved.fetch_to_task:
            if task in ran:
                self._connect(self.from_fetch[fetch], self.to_task[task], next(numbers))

    @staticmethod
    def _connect(leaving: list[int], arriving: list[int], number: int) -> None:
        leaving.append(number)
        arriving.append(number)

    def write(self) -> None:
        title = f"warm-up {self.repeat.number}" if self.repeat.warmup else f"repeat {self.repeat.number}"
        self._slice(self.hosts.repeats, self.repeat.start, self.repeat.stop, title, "repeat")
        path = critical_path(self.repeat)
        for index in range(len(path)):
            self._interval(self.hosts.path, path, index)
        self._threads()
        self._transfers()
        self._loops()
        self._assigned()

    def _threads(self) -> None:
        """Write waits as slices of their own, and tasks as slices around what happened while they ran."""
        waits = self.intervals.select(~is_running(self.repeat, self.intervals))
        start = np.concatenate([waits.start, self.tasks.start])
        lane = np.concatenate([waits.lane, self.tasks.lane])
        tracks = self._thread_tracks()
        for index in np.lexsort((start, lane)).tolist():
            if index < len(waits):
                self._interval(tracks[lane[index]], waits, index)
            else:
                self._task(tracks[lane[index]], index - len(waits))

    def _thread_tracks(self) -> list[int]:
        number: defaultdict[str, int] = defaultdict(int)
        tracks = []
        for worker, _ in self.repeat.thread_rows[1]:
            number[worker] += 1
            tracks.append(self.hosts.thread(worker, number[worker]))
        return tracks

    def _task(self, track: int, row: int) -> None:
        task = int(self.tasks.task[row])
        key = int(self.repeat.tasks.key[task])
        name = self.repeat.prefixes[key] if self.repeat.prefixes else self.repeat.keys[key]
        arguments: Arguments = {"key": self.repeat.keys[key]}
        start_ns, stop_ns = self._ns(self.tasks.start[row]), self._ns(self.tasks.stop[row])
        self.writer.begin_slice(
            track, start_ns, name, TASK, arguments, self.from_task[task], self.to_task[task]
        )
        for part in self.tasks.parts_of(row):
            if self.tasks.parts.cause[part] != COMPUTE.code:
                self._interval(track, self.tasks.parts, part)
        self.writer.end_slice(track, stop_ns)

    def _interval(self, track: int, intervals: Intervals, index: int) -> None:
        cause, task = CAUSES[intervals.cause[index]], int(intervals.task[index])
        arguments = {"where": self.repeat.places.name(int(intervals.place[index])), "cause": cause.name}
        if task != NONE:
            arguments["task"] = self.repeat.keys[int(self.repeat.tasks.key[task])]
        start, stop = float(intervals.start[index]), float(intervals.stop[index])
        self._slice(track, start, stop, cause.title, cause.group.value, arguments)

    def _transfers(self) -> None:
        fetches, names = self.repeat.fetches, self.repeat.places.nodes
        stages, first = fetch_stages(self.repeat)
        lane = assign_lanes(fetches.receiver, fetches.start, fetches.stop)
        for fetch in np.lexsort((fetches.start, lane, fetches.receiver)).tolist():
            track = self.hosts.transfers(names[fetches.receiver[fetch]], int(lane[fetch]))
            sender = names[fetches.sender[fetch]]
            name = f"refused by {sender}: busy" if fetches.busy[fetch] else f"from {sender}"
            keys = [self.repeat.keys[key] for key in self.repeat.fetched[fetch]]
            arguments: Arguments = {
                "keys": ", ".join(keys[:MAX_NAMED_KEYS]),
                "number of keys": len(keys),
                "bytes": int(self.repeat.moved[fetch]),
            }
            start_ns, stop_ns = self._ns(fetches.start[fetch]), self._ns(fetches.stop[fetch])
            leaving, arriving = self.from_fetch[fetch], self.to_fetch[fetch]
            self.writer.begin_slice(track, start_ns, name, TRANSFER, arguments, leaving, arriving)
            for stage in range(int(first[fetch]), int(first[fetch + 1])):
                self._interval(track, stages, stage)
            self.writer.end_slice(track, stop_ns)

    def _loops(self) -> None:
        busy, names = self.repeat.busy, self.repeat.places.nodes
        columns = (getattr(busy, name).tolist() for name in ("member", "start", "stop"))
        for node, start, stop in zip(*columns, strict=True):
            self._slice(self.hosts.loop(names[node]), start, stop, "busy", LOOP)

    def _assigned(self) -> None:
        for worker in self.repeat.threads:
            load, track = self.repeat.load[self.repeat.node(worker)], self.hosts.assigned(worker)
            for time, tasks in zip(load.time.tolist(), load.value.tolist(), strict=True):
                self.writer.count(track, self._ns(time), tasks)

    def _slice(
        self,
        track: int,
        start: float,
        stop: float,
        name: str,
        category: str,
        arguments: Arguments = NO_ARGUMENTS,
    ) -> None:
        self.writer.begin_slice(track, self._ns(start), name, category, arguments)
        self.writer.end_slice(track, self._ns(stop))

    def _ns(self, time: float) -> int:
        return round(1e9 * (float(time) - self.zero))


def _packets(writer: TraceWriter, capture: Recording, zero: float) -> None:
    """Show messages by sender, and the rate between each two hosts, on the capture's clock."""
    process = writer.process("packets")
    messages = sorted(capture.rows("messages"), key=lambda row: (row["source"], row["time_ns"]))
    sources = {source: code for code, source in enumerate(sorted({row["source"] for row in messages}))}
    start, stop = (np.array([row[column] for row in messages], float) for column in ("time_ns", "end_ns"))
    lane = assign_lanes(np.array([sources[row["source"]] for row in messages], np.int64), start, stop)
    tracks: dict[tuple[str, int], int] = {}
    for row, number in zip(messages, lane.tolist(), strict=True):
        key = row["source"], number
        if key not in tracks:
            tracks[key] = writer.track(process, f"messages of {row['source']}")
        name = f"to {row['destination']}: {row['op'] or row['kind']}"
        writer.begin_slice(tracks[key], _after(row["time_ns"], zero), name, MESSAGE, {"bytes": row["bytes"]})
        writer.end_slice(tracks[key], _after(row["end_ns"], zero))
    counters: dict[str, int] = {}
    for row in sorted(capture.rows("series"), key=lambda row: row["second"]):
        pair = f"{row['source']} to {row['destination']}"
        if pair not in counters:
            counters[pair] = writer.counter(process, pair, "Mbit/s")
        writer.count(counters[pair], _after(1e9 * row["second"], zero), row["ip_bytes"] * 8 / 1e6)


def _after(time_ns: float, zero: float) -> int:
    return round(time_ns - 1e9 * zero)
