"""A trial as a trace that ui.perfetto.dev and chrome://tracing open: threads, fetches, loops; one clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dasklab import atomic
from dasklab.breakdown.causes import COMPUTE, WORDS, Part
from dasklab.breakdown.critical_path import critical_path
from dasklab.breakdown.explain import Explained
from dasklab.breakdown.partition import account
from dasklab.breakdown.run import SCHEDULER, Run
from dasklab.results.storage import recording
from dasklab.results.storage.recording import Recording

Event = dict[str, Any]
PATH, LOOP = "critical path", 90  # the first process, and the row of a host's event loop
WIRE = 99  # the process of what packets showed


def write(found: Explained, path: Path) -> None:
    """Write the runs that count as one JSON file."""
    zero = min((run.start for run in found.timed), default=0.0)
    events = [event for run in found.timed for event in _Run(run, zero).events()]
    if capture := recording.read(found.directory) if found.captured else None:
        events += _wire(capture, zero)
    _from_zero(events)
    content = {"traceEvents": events, "displayTimeUnit": "ms"}
    atomic.write_text(path, json.dumps(content, allow_nan=False))


def _from_zero(events: list[Event]) -> None:
    """Perfetto drops what is before time zero, as what an event loop did when the run began."""
    first = min((event["ts"] for event in events if "ts" in event), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] -= first


def _wire(capture: Recording, zero: float) -> Iterator[Event]:
    """What packets showed, on the capture's clock: messages by sender, the rate between each two hosts."""
    yield {"ph": "M", "name": "process_name", "pid": WIRE, "args": {"name": "wire"}}
    senders: dict[str, int] = {}
    for number, row in enumerate(capture.rows("messages")):
        sender = senders.setdefault(row["source"], len(senders) + 1)
        common = {"cat": "message", "id": f"m{number}", "pid": WIRE, "tid": sender}
        common |= {"name": f"{row['source']} to {row['destination']}: {row['op'] or row['kind']}"}
        yield common | {"ph": "b", "ts": _us(row["time_ns"], zero), "args": {"bytes": row["bytes"]}}
        yield common | {"ph": "e", "ts": _us(row["end_ns"], zero)}
    for row in capture.rows("series"):
        common = {"ph": "C", "pid": WIRE, "name": f"Mbit/s {row['source']} to {row['destination']}"}
        yield common | {"ts": _us(1e9 * row["second"], zero), "args": {"rate": row["ip_bytes"] * 8 / 1e6}}


def _us(time_ns: float, zero: float) -> float:
    return time_ns / 1e3 - 1e6 * zero


@dataclass(frozen=True)
class _Run:
    """A run's events: processes are hosts, their rows threads and the event loop; times from ``zero`` on."""

    run: Run
    zero: float

    def events(self) -> Iterator[Event]:
        for host, number in self.hosts.items():
            yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": host}}
        yield from (self._part(PATH, 1, part) for part in critical_path(self.run))
        yield from self._threads()
        yield from self._loops()
        yield from self._fetches()
        yield from self._given()

    @property
    def hosts(self) -> dict[str, int]:
        return {host: number for number, host in enumerate((PATH, SCHEDULER, *self.run.threads), start=1)}

    def _threads(self) -> Iterator[Event]:
        rows: dict[str, int] = {}
        for thread in account(self.run):
            row = rows[thread.worker] = rows.get(thread.worker, 0) + 1
            yield self._named(thread.worker, row, f"thread {row}")
            yield from (self._part(thread.worker, row, part) for part in thread.parts)

    def _loops(self) -> Iterator[Event]:
        for host, spells in self.run.busy.items():
            yield self._named(host, LOOP, "event loop")
            for start, stop in zip(spells.starts, spells.stops, strict=True):
                yield self._span(host, LOOP, "busy", start, stop)

    def _fetches(self) -> Iterator[Event]:
        """They overlap, so each is a row of its own where a viewer needs it."""
        for number, fetch in enumerate(self.run.fetches):
            common = {"cat": "fetch", "id": f"{self.run.number}-{number}", "pid": self.hosts[fetch.receiver]}
            common |= {"tid": 0, "name": f"fetch from {fetch.sender}"}
            yield common | {"ph": "b", "ts": self._us(fetch.start), "args": {"keys": list(fetch.keys)}}
            yield common | {"ph": "e", "ts": self._us(fetch.stop)}

    def _given(self) -> Iterator[Event]:
        """How many tasks each worker has been given and has not ended."""
        steps = [(task.given, task.worker, 1) for task in self.run.tasks]
        steps += [(task.stop, task.worker, -1) for task in self.run.tasks]
        count = dict.fromkeys(self.run.threads, 0)
        for time, worker, change in sorted(steps):
            count[worker] += change
            common = {"ph": "C", "name": "tasks given", "pid": self.hosts[worker]}
            yield common | {"ts": self._us(time), "args": {"tasks": count[worker]}}

    def _part(self, host: str, row: int, part: Part) -> Event:
        words = WORDS[part.cause]
        name = part.key if part.cause == COMPUTE else words
        about = {"cause": words, "where": part.place, "task": part.key}
        return self._span(host, row, name, part.start, part.stop) | {"args": about}

    def _span(self, host: str, row: int, name: str, start: float, stop: float) -> Event:
        where = {"pid": self.hosts[host], "tid": row, "name": name}
        return {"ph": "X", "ts": self._us(start), "dur": 1e6 * (stop - start)} | where

    def _named(self, host: str, row: int, name: str) -> Event:
        return {"ph": "M", "name": "thread_name", "pid": self.hosts[host], "tid": row, "args": {"name": name}}

    def _us(self, time: float) -> float:
        return 1e6 * (time - self.zero)
