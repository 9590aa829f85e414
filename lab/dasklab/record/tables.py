"""From what the processes recorded to tables: names for addresses, and each task's way joined. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dasklab.model.dask_settings import flatten
from dasklab.model.files import Sample
from dasklab.record.schema import TABLES

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Taken = Mapping[str, Any]  # what one call of the workload's ``take`` gave
FORM = 1  # of what the preload hands over
TICK_S = 1e-6  # stamps are rounded to this


def tables(taken: Sequence[Taken | None], samples: Sequence[Sample]) -> Tables:
    """All tables of a trial's runs; a run that nothing is known of is left out."""
    found: Tables = {name: [] for name in TABLES}
    known = [(sample, records) for sample, records in zip(samples, taken, strict=False) if records]
    for sample, records in known:
        for name, rows in _run(records, sample):
            found[name] += [{"run": sample.run} | row for row in rows]
    if known:
        found["config"] = list(_config(known[0][1]))
    return found


def other_form(taken: Sequence[Taken | None]) -> bool:
    """Was it recorded by another version of the preload?"""
    return any(records["scheduler"].get("form") != FORM for records in taken if records)


def _run(taken: Taken, sample: Sample) -> Iterator[tuple[str, Iterable[Row]]]:
    scheduler, workers = taken["scheduler"], taken["workers"]
    names = {address: name for address, name, _ in scheduler["workers"]}
    nodes = {"scheduler": scheduler} | {names.get(a, a): records for a, records in workers.items()}
    yield (
        "runs",
        [
            {
                "warmup": sample.warmup,
                "start_s": sample.start,
                "stop_s": sample.stop,
                "asked_s": taken["asked"],
                "now_s": scheduler["now"],
                "answered_s": taken["answered"],
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
    yield "graphs", _graphs(taken.get("graphs", ()), scheduler.get("graphs", ()))
    yield "tasks", _tasks(scheduler, workers, names)
    yield "needs", _needs(workers, names)
    yield "fetches", _fetches(workers, names)
    for name, records in nodes.items():
        yield "busy", _rows(records["spells"], {"node": name}, "start_s", "stop_s")
        waited = zip(("process/cpu/seconds", "process/waiting-for-cpu/seconds"), records["cpu"], strict=True)
        metrics = [*records["metrics"], *waited]
        yield "metrics", _rows(metrics, {"node": name}, "metric", "value")
        yield "profiles", _rows(records.get("profile", ()), {"worker": name}, "stack", "seconds")
        yield "delays", _rows(records.get("delays", ()), {"node": name}, "time_s", "delay_s")
    yield "transitions", _rows(scheduler["transitions"], {}, "key", "start", "finish", "stimulus", "time_s")
    load = ("time_s", "worker", "processing", "occupancy_s", "queued")
    yield "load", _named(_rows(scheduler["load"], {}, *load), names, "worker")
    steals = _rows(scheduler["steals"], {}, "time_s", "kind", "key", "victim", "thief")
    yield "steals", _named(steals, names, "victim", "thief")
    bandwidths = [("", "", scheduler["bandwidth"]), *scheduler["bandwidth_workers"]]
    rows = _rows(bandwidths, {}, "receiver", "sender", "bytes_per_s")
    yield "bandwidths", _named(rows, names, "receiver", "sender")


def _graphs(sent: Sequence[Sequence[Any]], received: Sequence[Sequence[Any]]) -> Iterator[Row]:
    """What the client sent, in the order in which the scheduler had it."""
    names = ("begin_s", "sent_s", "nbytes"), ("received_s", "tasks", "materialise_s", "order_s", "state_s")
    for ours, theirs in zip(sent, received, strict=False):
        yield dict(zip(names[0], ours, strict=True)) | dict(zip(names[1], theirs, strict=True))


def _rows(records: Iterable[Sequence[Any]], common: Row, *columns: str) -> list[Row]:
    return [common | dict(zip(columns, record, strict=True)) for record in records]


def _named(rows: Iterable[Row], names: Mapping[str, str], *columns: str) -> list[Row]:
    return [row | {column: names.get(row[column], row[column]) for column in columns} for row in rows]


def _config(taken: Taken) -> Iterator[Row]:
    names = {address: name for address, name, _ in taken["scheduler"]["workers"]}
    nodes = {"scheduler": taken["scheduler"]} | {names.get(a, a): w for a, w in taken["workers"].items()}
    for node, records in nodes.items():
        for setting, value in flatten(records["config"]):
            yield {"node": node, "setting": setting, "value": json.dumps(value)}


class _Stamps:
    """Stamps of one kind by key; the same key may have several, as when a task is stolen."""

    def __init__(self, stamped: Iterable[tuple[str, Any]]) -> None:
        self.by_key: defaultdict[str, list[Any]] = defaultdict(list)
        for key, stamp in stamped:
            self.by_key[key].append(stamp)

    def last(self, key: str, bound: float | None) -> float | None:
        """The last one until a time."""
        found = self.by_key.get(key, ())
        return max((t for t in found if bound is None or t <= bound + TICK_S), default=None)

    def first(self, key: str, bound: float | None) -> float | None:
        """The first one from a time on."""
        found = self.by_key.get(key, ())
        return min((t for t in found if bound is None or t >= bound - TICK_S), default=None)


class _Scheduler:
    """What the scheduler did about each task."""

    def __init__(self, records: Taken) -> None:
        log = records["transitions"]
        self.waiting = _Stamps((key, when) for key, _, finish, _, when in log if finish == "waiting")
        self.decided = _Stamps((key, when) for key, _, finish, _, when in log if finish == "processing")
        sent = [row for row in records["sent"] if row[3] == "compute-task"]
        self.sent = _Stamps((row[2], row[0]) for row in sent)
        self.due = {(row[2], row[0]): row[4] for row in sent}
        ends = [row for row in log if row[1] == "processing" and row[2] in ("memory", "erred")]
        self.handled = _Stamps((row[0], row[4]) for row in ends)
        self.ended = {stimulus: key for key, _, _, stimulus, _ in reversed(ends)}
        self.why = {(key, when): stimulus for key, _, finish, stimulus, when in log if finish == "processing"}

    def way(self, key: str) -> Row:
        """Stages by the scheduler's clock, and what made it choose a worker."""
        handled = self.handled.last(key, None)
        decided = self.decided.last(key, handled)
        sent = self.sent.last(key, handled)
        stimulus = self.why.get((key, decided), "") if decided is not None else ""
        return {
            "waiting_s": self.waiting.last(key, decided),
            "decided_s": decided,
            "due_s": self.due.get((key, sent)),
            "sent_s": sent,
            "handled_s": handled,
            "trigger": self.ended.get(stimulus, ""),
            "stimulus": stimulus.rpartition("-")[0],
        }


class _Worker:
    """What a worker did about each task."""

    def __init__(self, records: Taken) -> None:
        self.arrived = _Stamps((key, when) for key, when, _ in records["arrived"])
        self.ready = _Stamps((key, when) for key, state, when in records["states"] if state == "ready")
        self.given = _Stamps((key, when) for key, state, when in records["states"] if state == "executing")
        self.done = _Stamps((key, when) for key, when, _ in records["done"])
        sent = [row for row in records["sent"] if row[3] != "compute-task"]
        self.reported = _Stamps((row[2], row[0]) for row in sent)
        self.due = {(row[2], row[0]): row[4] for row in sent}

    def way(self, key: str, start: float | None, stop: float | None) -> Row:
        """Stages by the worker's clock."""
        executing = self.given.last(key, start)
        ready = self.ready.last(key, executing)
        done = self.done.first(key, stop)
        reported = self.reported.first(key, done)
        return {
            "arrived_s": self.arrived.last(key, ready or executing or start),
            "ready_s": ready,
            "executing_s": executing,
            "start_s": start,
            "stop_s": stop,
            "done_s": done,
            "report_due_s": self.due.get((key, reported)),
            "reported_s": reported,
        }


def _tasks(scheduler: Taken, workers: Mapping[str, Taken], names: Mapping[str, str]) -> Iterator[Row]:
    ours, theirs = _Scheduler(scheduler), {address: _Worker(records) for address, records in workers.items()}
    for key, address, thread, nbytes, kind, status, steps in scheduler["tasks"]:
        compute = [(start, stop) for action, start, stop in steps if action == "compute"]
        start, stop = (compute[0][0], compute[-1][1]) if compute else (None, None)
        disk = sum(stop - start for action, start, stop in steps if action.startswith("disk"))
        way = theirs[address].way(key, start, stop) if address in theirs else {}
        worker = names.get(address, address)
        about = {"disk_s": disk, "nbytes": nbytes, "type": kind, "status": status}
        yield {"key": key, "worker": worker, "thread": thread} | ours.way(key) | way | about


def _needs(workers: Mapping[str, Taken], names: Mapping[str, str]) -> Iterator[Row]:
    for address, records in workers.items():
        for key, _, needs in records["arrived"]:
            for needed, nbytes, holders in needs:
                yield {
                    "key": key,
                    "worker": names.get(address, address),
                    "needed": needed,
                    "nbytes": nbytes,
                    "holders": [names.get(holder, holder) for holder in holders],
                }


def _fetches(workers: Mapping[str, Taken], names: Mapping[str, str]) -> Iterator[Row]:
    """Each fetch of a worker's, with how its peer served it: in order, of the same keys."""
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
                "keys": keys,
                "status": status,
            }
