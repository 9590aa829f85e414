"""The JSON form of a trace, the Trace Event Format: threads, fetches and event loops, without arrows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dasklab import atomic
from dasklab.breakdown.answers.critical_path import critical_path
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.causes import CAUSES, COMPUTE
from dasklab.breakdown.model.intervals import NO_TASK, Intervals
from dasklab.breakdown.model.run import SCHEDULER, Run
from dasklab.breakdown.show.explain import Explained
from dasklab.results.storage import recording
from dasklab.results.storage.recording import Recording

Event = dict[str, Any]
PATH = "critical path"  # the first process
LOOP_ROW = 90  # of a host's event loop
PACKETS = 99  # the process that shows packets


def write(explained: Explained, path: Path) -> None:
    """Write the timed runs as one JSON file."""
    zero = min((run.start for run in explained.timed), default=0.0)
    events = [event for run in explained.timed for event in _RunEvents(run, zero).events()]
    if capture := recording.read(explained.directory) if explained.captured else None:
        events += _packets(capture, zero)
    _shift_to_zero(events)
    content = {"traceEvents": events, "displayTimeUnit": "ms"}
    atomic.write_text(path, json.dumps(content, allow_nan=False))


def _shift_to_zero(events: list[Event]) -> None:
    """Make the earliest event the origin: Perfetto drops what is before time zero."""
    first = min((event["ts"] for event in events if "ts" in event), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] -= first


def _packets(capture: Recording, zero: float) -> Iterator[Event]:
    """Show messages by sender, and the rate between each two hosts, on the capture's clock."""
    yield {"ph": "M", "name": "process_name", "pid": PACKETS, "args": {"name": "packets"}}
    senders: dict[str, int] = {}
    for number, row in enumerate(capture.rows("messages")):
        sender = senders.setdefault(row["source"], len(senders) + 1)
        common = {"cat": "message", "id": f"m{number}", "pid": PACKETS, "tid": sender}
        common |= {"name": f"{row['source']} to {row['destination']}: {row['op'] or row['kind']}"}
        yield common | {"ph": "b", "ts": _us(row["time_ns"], zero), "args": {"bytes": row["bytes"]}}
        yield common | {"ph": "e", "ts": _us(row["end_ns"], zero)}
    for row in capture.rows("series"):
        common = {"ph": "C", "pid": PACKETS, "name": f"Mbit/s {row['source']} to {row['destination']}"}
        yield common | {"ts": _us(1e9 * row["second"], zero), "args": {"rate": row["ip_bytes"] * 8 / 1e6}}


def _us(time_ns: float, zero: float) -> float:
    return time_ns / 1e3 - 1e6 * zero


@dataclass(frozen=True)
class _RunEvents:
    """A run's events. Processes are hosts; their rows are threads and the loop. Times start at ``zero``."""

    run: Run
    zero: float

    def events(self) -> Iterator[Event]:
        for host, number in self.hosts.items():
            yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": host}}
        yield from self._intervals(critical_path(self.run), [(PATH, 1)])
        yield from self._threads()
        yield from self._loops()
        yield from self._fetches()
        yield from self._assigned()

    @property
    def hosts(self) -> dict[str, int]:
        return {host: number for number, host in enumerate((PATH, SCHEDULER, *self.run.threads), start=1)}

    def _threads(self) -> Iterator[Event]:
        count = dict.fromkeys(self.run.threads, 0)
        rows = []
        for worker, _ in self.run.thread_rows[1]:
            count[worker] += 1
            rows.append((worker, count[worker]))
            yield self._row_name(worker, count[worker], f"thread {count[worker]}")
        yield from self._intervals(break_down(self.run), rows)

    def _intervals(self, intervals: Intervals, rows: list[tuple[str, int]]) -> Iterator[Event]:
        columns = (
            getattr(intervals, name).tolist() for name in ("start", "stop", "cause", "place", "task", "lane")
        )
        for start, stop, code, place, task, lane in zip(*columns, strict=True):
            cause = CAUSES[code]
            key = self.run.keys[self.run.tasks.key[task]] if task != NO_TASK else ""
            about = {"cause": cause.title, "where": self.run.places.name(place), "task": key}
            name = key if cause is COMPUTE else cause.title
            host, row = rows[lane]
            yield self._span(host, row, name, start, stop) | {"args": about}

    def _loops(self) -> Iterator[Event]:
        busy, names = self.run.busy, self.run.places.nodes
        for node in np.unique(busy.member).tolist():
            yield self._row_name(names[node], LOOP_ROW, "event loop")
        columns = (getattr(busy, name).tolist() for name in ("member", "start", "stop"))
        for node, start, stop in zip(*columns, strict=True):
            yield self._span(names[node], LOOP_ROW, "busy", start, stop)

    def _fetches(self) -> Iterator[Event]:
        """Show each fetch in a row of its own where they overlap."""
        fetches, names = self.run.fetches, self.run.places.nodes
        for number in range(len(fetches)):
            pid = self.hosts[names[fetches.receiver[number]]]
            common = {"cat": "fetch", "id": f"{self.run.number}-{number}", "pid": pid, "tid": 0}
            common |= {"name": f"fetch from {names[fetches.sender[number]]}"}
            keys = [self.run.keys[key] for key in self.run.fetched[number]]
            start, stop = float(fetches.start[number]), float(fetches.stop[number])
            yield common | {"ph": "b", "ts": self._us(start), "args": {"keys": keys}}
            yield common | {"ph": "e", "ts": self._us(stop)}

    def _assigned(self) -> Iterator[Event]:
        """Show how many tasks each worker has been assigned that have not ended."""
        for worker in self.run.threads:
            load = self.run.load[self.run.node(worker)]
            common = {"ph": "C", "name": "tasks assigned", "pid": self.hosts[worker]}
            for time, tasks in zip(load.time.tolist(), load.value.tolist(), strict=True):
                yield common | {"ts": self._us(time), "args": {"tasks": tasks}}

    def _span(self, host: str, row: int, name: str, start: float, stop: float) -> Event:
        where = {"pid": self.hosts[host], "tid": row, "name": name}
        return {"ph": "X", "ts": self._us(start), "dur": 1e6 * (stop - start)} | where

    def _row_name(self, host: str, row: int, name: str) -> Event:
        return {"ph": "M", "name": "thread_name", "pid": self.hosts[host], "tid": row, "args": {"name": name}}

    def _us(self, time: float) -> float:
        return 1e6 * (time - self.zero)
