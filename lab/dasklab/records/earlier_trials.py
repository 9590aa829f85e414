"""Read the records of trials that were measured before trials held a record like any other cluster's.

They are one file, ``records.json`` or ``capture-records.json``, with what a preload of scheduler and workers
kept of each repeat. It kept less than today's recorder: no calls of the client, no events, waits or pauses,
and one sum of CPU time for each process and repeat. This module turns them into the tables of ``schema``, so
that their readers need not know. What follows from other rows is added:

- ``cpu``: two samples, at the start and at the end of a repeat, with half of the waiting in the event loop.
- ``calls``: one, in which the client waits: from when it sent its last graph until the end of the repeat.
- ``queued_s``: from the transitions of the task.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from dasklab.errors import UNFORESEEN, DamagedError, LabError
from dasklab.model.files import CaptureRecords, CaptureReport, Records, Sample, Timings
from dasklab.model.settings.dask_settings import flatten
from dasklab.records.chunk_file import inflate
from dasklab.records.recorder.layout import KEY_SEPARATOR
from dasklab.records.recorder.process import CPU, WAITING_FOR_CPU
from dasklab.records.schema import TABLES
from dasklab.results.run import Trial

Row = dict[str, Any]
Tables = dict[str, list[Row]]
RepeatRecords = Mapping[str, Any]  # what the processes kept of one repeat
PRELOAD_FORM = 1
TICK_S = 1e-6  # stamps are rounded to this


def frames(trial: Trial, captured: bool = False) -> dict[str, pd.DataFrame]:
    """Return the tables of an earlier trial's timed repeats, or of its captured ones.

    Raises:
        LabError: its records are damaged, or were kept by another version of the preload.
    """
    kind = CaptureRecords if captured else Records
    source, packed = trial.file_of(kind), trial.require(kind)
    timings = trial.require(CaptureReport).timings if captured else trial.require(Timings)
    try:
        unpacked = json.loads(inflate(base64.b64decode(packed.records, validate=True)))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{source}: its records cannot be unpacked: {error}") from error
    try:
        other = other_form(unpacked)
        rows_of = {} if other else tables(unpacked, timings.samples)
    except UNFORESEEN as error:
        why = f"{type(error).__name__}: {error}"
        raise DamagedError(f"{source}: its records are not of the expected form ({why})") from error
    if other:
        raise LabError(f"{source}: it was recorded by another version of the lab")
    return {name: pd.DataFrame(rows, columns=list(TABLES[name])) for name, rows in rows_of.items()}


def tables(repeats: Sequence[RepeatRecords | None], samples: Sequence[Sample]) -> Tables:
    """Return all tables of a trial's repeats; a repeat without records is left out."""
    result: Tables = {name: [] for name in TABLES}
    recorded = [(sample, records) for sample, records in zip(samples, repeats, strict=False) if records]
    for sample, records in recorded:
        for name, rows in _repeat(records, sample):
            result[name] += [{"repeat": sample.repeat} | row for row in rows]
    if recorded:
        result["config"] = list(_config(recorded[0][1]))
    return result


def other_form(repeats: Sequence[RepeatRecords | None]) -> bool:
    """Whether it was recorded by another version of the preload."""
    return any(records["scheduler"].get("form") != PRELOAD_FORM for records in repeats if records)


def _repeat(records: RepeatRecords, sample: Sample) -> Iterator[tuple[str, Iterable[Row]]]:
    scheduler, workers = records["scheduler"], records["workers"]
    names = {address: name for address, name, _ in scheduler["workers"]}
    nodes = {"scheduler": scheduler} | {names.get(a, a): records for a, records in workers.items()}
    yield (
        "repeats",
        [
            {
                "form": PRELOAD_FORM,
                "warmup": sample.warmup,
                "start_s": sample.start,
                "stop_s": sample.stop,
                "lost": sum(records["lost"] for records in nodes.values()),
            }
        ],
    )
    yield (
        "workers",
        [
            {"worker": name, "address": address, "threads": threads, "loop": workers[address]["loop"]}
            for address, name, threads in scheduler["workers"]
            if address in workers
        ],
    )
    clock = {"asked_s": records["asked"], "now_s": scheduler["now"], "answered_s": records["answered"]}
    yield "clock", [clock]
    yield "graphs", _graphs(records.get("graphs", ()), scheduler.get("graphs", ()))
    yield "calls", _calls(records.get("graphs", ()), sample)
    yield "tasks", _tasks(scheduler, workers, names)
    yield "needs", _needs(workers, names)
    yield "fetches", _fetches(workers, names)
    for name, records in nodes.items():
        yield "busy", _rows(records["spells"], {"node": name}, "start_s", "stop_s")
        yield "cpu", _cpu(name, sample, *records["cpu"])
        waited = zip((CPU, WAITING_FOR_CPU), records["cpu"], strict=True)
        metrics = [*records["metrics"], *waited]
        yield "metrics", _rows(metrics, {"node": name}, "metric", "value")
        yield "profiles", _rows(records.get("profile", ()), {"worker": name}, "stack", "seconds")
        yield "delays", _rows(records.get("delays", ()), {"node": name}, "time_s", "delay_s")
    load = ("time_s", "worker", "processing", "occupancy_s", "queued")
    yield "load", _named(_rows(scheduler["load"], {}, *load), names, "worker")
    steals = _rows(scheduler["steals"], {}, "time_s", "kind", "key", "victim", "thief")
    yield "steals", _named(steals, names, "victim", "thief")
    bandwidths = [("", "", scheduler["bandwidth"]), *scheduler["bandwidth_workers"]]
    rows = _rows(bandwidths, {}, "receiver", "sender", "bytes_per_s")
    yield "bandwidths", _named(rows, names, "receiver", "sender")


def _cpu(node: str, sample: Sample, cpu_s: float, waiting_s: float) -> list[Row]:
    """Return samples at the ends of a repeat. The sum of the waits is divided in two: loop and threads."""
    ends = ((sample.start, 0.0), (sample.stop, 1.0))
    return [
        {"node": node, "time_s": time_s, "cpu_s": share * cpu_s}
        | {"waiting_s": share * waiting_s, "loop_waiting_s": share * waiting_s / 2}
        for time_s, share in ends
    ]


def _calls(graphs: Sequence[Sequence[Any]], sample: Sample) -> list[Row]:
    """Return the call in which the client waits for the results of its last graph."""
    start = graphs[-1][1] if graphs else sample.start
    return [{"kind": "sync", "start_s": start, "stop_s": sample.stop, "keys": 0, "nbytes": 0.0}]


def _graphs(sent: Sequence[Sequence[Any]], received: Sequence[Sequence[Any]]) -> Iterator[Row]:
    """Join what the client sent with what the scheduler received, in order."""
    of_client = ("begin_s", "sent_s", "nbytes")
    of_scheduler = ("received_s", "tasks", "materialise_s", "order_s", "state_s")
    for departure, arrival in zip(sent, received, strict=False):
        row = dict(zip(of_client, departure, strict=True))
        yield row | dict(zip(of_scheduler, arrival, strict=True))


def _rows(records: Iterable[Sequence[Any]], common: Row, *columns: str) -> list[Row]:
    return [common | dict(zip(columns, record, strict=True)) for record in records]


def _named(rows: Iterable[Row], names: Mapping[str, str], *columns: str) -> list[Row]:
    return [row | {column: names.get(row[column], row[column]) for column in columns} for row in rows]


def _config(records: RepeatRecords) -> Iterator[Row]:
    names = {address: name for address, name, _ in records["scheduler"]["workers"]}
    nodes = {"scheduler": records["scheduler"]} | {names.get(a, a): w for a, w in records["workers"].items()}
    for node, records in nodes.items():
        for setting, value in flatten(records["config"]):
            yield {"node": node, "setting": setting, "value": json.dumps(value)}


class _Stamps:
    """Stamps of one kind by key; a key may have several, for example when a task moved to another worker."""

    def __init__(self, stamped: Iterable[tuple[str, Any]]) -> None:
        self.by_key: defaultdict[str, list[Any]] = defaultdict(list)
        for key, stamp in stamped:
            self.by_key[key].append(stamp)

    def last(self, key: str, bound: float | None) -> float | None:
        """Return the last stamp until a time."""
        stamps = self.by_key.get(key, ())
        return max((t for t in stamps if bound is None or t <= bound + TICK_S), default=None)

    def first(self, key: str, bound: float | None) -> float | None:
        """Return the first stamp from a time on."""
        stamps = self.by_key.get(key, ())
        return min((t for t in stamps if bound is None or t >= bound - TICK_S), default=None)


class _Scheduler:
    """What the scheduler stamped of each task."""

    def __init__(self, records: RepeatRecords) -> None:
        log = records["transitions"]
        self.waiting = _Stamps((key, when) for key, _, finish, _, when in log if finish == "waiting")
        self.queued = _Stamps((key, when) for key, _, finish, _, when in log if finish == "queued")
        self.decided = _Stamps((key, when) for key, _, finish, _, when in log if finish == "processing")
        messages = [row for row in records["sent"] if row[3] == "compute-task"]
        self.sent = _Stamps((row[2], row[0]) for row in messages)
        self.due = {(row[2], row[0]): row[4] for row in messages}
        ends = [row for row in log if row[1] == "processing" and row[2] in ("memory", "erred")]
        self.handled = _Stamps((row[0], row[4]) for row in ends)
        self.ended = {stimulus: key for key, _, _, stimulus, _ in reversed(ends)}
        self.why = {(key, when): stimulus for key, _, finish, stimulus, when in log if finish == "processing"}

    def stages(self, key: str) -> Row:
        """Return stamps of the scheduler's clock, and what made it choose a worker."""
        handled = self.handled.last(key, None)
        decided = self.decided.last(key, handled)
        sent = self.sent.last(key, handled)
        stimulus = self.why.get((key, decided), "") if decided is not None else ""
        return {
            "waiting_s": self.waiting.last(key, decided),
            "queued_s": self.queued.last(key, decided),
            "decided_s": decided,
            "due_s": self.due.get((key, sent)) or None,
            "sent_s": sent,
            "handled_s": handled,
            "trigger": self.ended.get(stimulus, ""),
            "stimulus": stimulus.rpartition("-")[0],
        }


class _Worker:
    """What a worker stamped of each task."""

    def __init__(self, records: RepeatRecords) -> None:
        self.arrived = _Stamps((key, when) for key, when, _ in records["arrived"])
        self.ready = _Stamps((key, when) for key, state, when in records["states"] if state == "ready")
        self.executing = _Stamps(
            (key, when) for key, state, when in records["states"] if state == "executing"
        )
        self.ended = _Stamps((key, when) for key, when, _ in records["done"])
        messages = [row for row in records["sent"] if row[3] != "compute-task"]
        self.reported = _Stamps((row[2], row[0]) for row in messages)
        self.due = {(row[2], row[0]): row[4] for row in messages}

    def stages(self, key: str, start: float | None, stop: float | None) -> Row:
        """Return stamps of the worker's clock."""
        executing = self.executing.last(key, start)
        ready = self.ready.last(key, executing)
        completion = self.ended.first(key, stop)
        reported = self.reported.first(key, completion)
        return {
            "arrived_s": self.arrived.last(key, ready or executing or start),
            "ready_s": ready,
            "executing_s": executing,
            "start_s": start,
            "stop_s": stop,
            "done_s": completion,
            "report_due_s": self.due.get((key, reported)) or None,
            "reported_s": reported,
        }


def _tasks(
    scheduler: RepeatRecords, workers: Mapping[str, RepeatRecords], names: Mapping[str, str]
) -> Iterator[Row]:
    by_scheduler = _Scheduler(scheduler)
    by_worker = {address: _Worker(records) for address, records in workers.items()}
    for key, address, thread, nbytes, kind, status, steps in scheduler["tasks"]:
        compute = [(start, stop) for action, start, stop in steps if action == "compute"]
        start, stop = (compute[0][0], compute[-1][1]) if compute else (None, None)
        disk = sum(stop - start for action, start, stop in steps if action.startswith("disk"))
        stages = by_worker[address].stages(key, start, stop) if address in by_worker else {}
        worker = names.get(address, address)
        fields = {"disk_s": disk, "nbytes": nbytes, "type": kind, "status": status}
        yield {"key": key, "worker": worker, "thread": thread} | by_scheduler.stages(key) | stages | fields


def _needs(workers: Mapping[str, RepeatRecords], names: Mapping[str, str]) -> Iterator[Row]:
    for address, records in workers.items():
        for key, _, needs in records["arrived"]:
            for needed, nbytes, holders in needs:
                yield {
                    "key": key,
                    "worker": names.get(address, address),
                    "needed": needed,
                    "nbytes": nbytes,
                    "holders": KEY_SEPARATOR.join(names.get(holder, holder) for holder in holders),
                }


def _fetches(workers: Mapping[str, RepeatRecords], names: Mapping[str, str]) -> Iterator[Row]:
    """Join each fetch with how its peer served it: of the same keys, in order."""
    served: defaultdict[tuple[str, str, tuple[str, ...]], list[Any]] = defaultdict(list)
    for address, records in workers.items():
        for start, stop, who, keys, serialise in records["served"]:
            served[address, who, tuple(sorted(keys))].append((start, stop, serialise))
    for address, records in workers.items():
        for start, stop, peer, keys, status, deserialise in records["fetches"]:
            answers = served[peer, address, tuple(sorted(keys))]
            serve = answers.pop(0) if answers else (None, None, 0.0)
            yield {
                "receiver": names.get(address, address),
                "sender": names.get(peer, peer),
                "start_s": start,
                "stop_s": stop,
                "deserialise_s": deserialise,
                "serve_start_s": serve[0],
                "serve_stop_s": serve[1],
                "serialise_s": serve[2],
                "keys": KEY_SEPARATOR.join(keys),
                "status": status,
            }
