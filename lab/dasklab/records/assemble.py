"""From what a recorder's processes kept to the tables of ``schema``: names for addresses, stages joined."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from dasklab.records.chunks import Processes, Tables, complete
from dasklab.records.document import Record, RecordedRepeat
from dasklab.records.recorder.layout import KEY_SEPARATOR
from dasklab.records.schema import TABLES

Codes = npt.NDArray[np.int64]
CLIENT, SCHEDULER = "client", "scheduler"
STAMPS_OF_SCHEDULER = {
    "waiting": "waiting_s", "queued": "queued_s", "decided": "decided_s", "due": "due_s", "sent": "sent_s",
    "handled": "handled_s",
}  # fmt: skip
STAMPS_OF_WORKER = {
    "arrived": "arrived_s", "ready": "ready_s", "executing": "executing_s", "start": "start_s",
    "stop": "stop_s", "seceded": "seceded_s", "done": "done_s", "due": "report_due_s",
    "reported": "reported_s",
}  # fmt: skip
CPU_OF_TASKS = {"cpu": "cpu_s", "cpu_waiting": "cpu_waiting_s"}
BYTES = {name: f"{name}_bytes" for name in ("process", "managed", "spilled", "limit")}
REQUEST = ("receiver", "sender", "keys")
UNFINISHED = "unfinished"
STATUS = {"memory": "OK", "erred": "error", "error": "error"}


def tables(parts: Mapping[int | None, Processes], record: Record) -> dict[str, pd.DataFrame]:
    """Return all tables of a record: of its repeats, or of one block from start to stop.

    Args:
        parts: for each repeat what each process recorded: the client, the scheduler, and each worker by its
            address. Under None is what belongs to no repeat.
    """
    if not record.repeats:
        whole = RecordedRepeat(0, False, record.start, record.stop, len(record.lost))
        return _tables(parts.get(None, {}), record, whole)
    so_far, frames = dict(parts.get(None, {})), []
    for repeat in record.repeats:
        so_far = carried_over(so_far, parts.get(repeat.number, {}))
        frames.append(_tables(so_far, record, repeat))
    return {
        name: frames[-1][name] if "repeat" not in columns else _joined([frame[name] for frame in frames])
        for name, columns in TABLES.items()
    }


def carried_over(before: Processes, now: Processes) -> Processes:
    """Return what was recorded in a repeat, with what is still valid of the time before it.

    That is what a process said of itself, which workers there are, and the last sample of each series.
    """
    workers = before.get(SCHEDULER, {}).get("workers")
    departed = set() if workers is None else _left(workers)
    earlier = {
        process: {name: select(tables[name]) for name, select in CARRIED.items() if name in tables}
        for process, tables in before.items()
        if process not in departed
    }
    return {process: _both(earlier.get(process, {}), now.get(process, {})) for process in {**earlier, **now}}


def _both(before: Tables, now: Tables) -> Tables:
    return {
        name: pd.concat([tables[name] for tables in (before, now) if name in tables], ignore_index=True)
        for name in {**before, **now}
    }


def _left(workers: pd.DataFrame) -> set[str]:
    """Return the addresses of the workers that have left."""
    last = workers.drop_duplicates("worker", keep="last")
    return set(last.worker[last.kind == "left"])


def _present(workers: pd.DataFrame) -> pd.DataFrame:
    """Return the workers that have not left, as if they had been there from the start."""
    remaining = workers[~workers.worker.isin(_left(workers)) & (workers.kind != "left")]
    return remaining.assign(kind="present")


CARRIED: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "about": lambda rows: rows,
    "config": lambda rows: rows,
    "interfaces": lambda rows: rows,
    "workers": _present,
    "cpu": lambda rows: rows.tail(1),
    "delays": lambda rows: rows.tail(1),
}


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Join the rows of repeats. An empty table has no types, so it must not decide those of the others."""
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]


def _tables(processes: Processes, record: Record, repeat: RecordedRepeat) -> dict[str, pd.DataFrame]:
    scheduler = complete(processes.get(SCHEDULER, {}), SCHEDULER)
    client = complete(processes.get(CLIENT, {}), CLIENT)
    names = worker_names(scheduler["workers"])
    workers = {
        address: complete(own, address)
        for address, own in processes.items()
        if address not in (CLIENT, SCHEDULER)
    }
    joined = _Workers(workers, names)
    frames = {
        "repeats": pd.DataFrame(
            [
                {
                    "form": record.form,
                    "warmup": repeat.warmup,
                    "start_s": repeat.start,
                    "stop_s": repeat.stop,
                    "lost": repeat.lost,
                }
            ]
        ),
        "clock": client["clock"].set_axis(["asked_s", "now_s", "answered_s"], axis=1),
        "workers": _workers(scheduler["workers"], names, joined.facts("loop")),
        "tasks": _tasks(scheduler["tasks"], joined),
        "errors": _seconds(joined.rows("errors", "worker"), "time"),
        "needs": _needs(joined),
        "fetches": _fetches(joined),
        "graphs": _graphs(scheduler["graphs"], client["graphs"], record.client),
        "introduced": _introduced(scheduler["tasks"], scheduler["graphs"]),
        "calls": _seconds(_during(client["calls"], repeat), "start", "stop"),
        "lines": _seconds(_during(client["lines"], repeat), "start", "stop"),
        "busy": _of_all(joined, "busy", scheduler, client, start="start_s", stop="stop_s", late="late_s"),
        "cpu": _of_all(joined, "cpu", scheduler, client, time="time_s", cpu="cpu_s", waiting="waiting_s",
                       loop_waiting="loop_waiting_s", memory="memory_bytes", loop_cpu="loop_cpu_s",
                       held="held_s", machine="machine_s"),
        "machines": _machines(_of_all(joined, "about", scheduler, client)),
        "shards": _shards(joined),
        "pauses": _of_all(joined, "pauses", scheduler, client, start="start_s", stop="stop_s"),
        "stacks": _of_all(joined, "stacks", scheduler, client, time="time_s").assign(
            stack=lambda rows: rows["stack"].map(json.loads)
        ),
        "metrics": _of_all(joined, "metrics", scheduler, client),
        "config": _of_all(joined, "config", scheduler, client),
        "interfaces": _of_all(joined, "interfaces", scheduler, client),
        "waits": _seconds(joined.rows("waits", "worker"), "start", "stop"),
        "actor_calls": _seconds(joined.rows("actor_calls", "worker"), "start", "stop"),
        "delays": _seconds(joined.rows("delays", "node"), "time", "delay"),
        "profiles": joined.rows("profile", "worker").assign(stack=lambda rows: rows["stack"].map(json.loads)),
        "events": _seconds(scheduler["events"], "time").replace({"subject": names}),
        "load": _seconds(scheduler["load"], "time", "occupancy").replace({"worker": names}),
        "memory": _memory(scheduler["memory"]).replace({"worker": names}),
        "steals": _seconds(scheduler["steals"], "time").replace({"victim": names, "thief": names}),
        "bandwidths": scheduler["bandwidths"].replace({"receiver": names, "sender": names}),
        "results": _seconds(scheduler["results"], "time"),
    }  # fmt: skip
    return {
        name: (
            frames[name] if "repeat" not in columns else frames[name].assign(repeat=repeat.number)
        ).reindex(columns=list(columns))
        for name, columns in TABLES.items()
    }


def _memory(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what heartbeats said, in the order of their arrival."""
    return _seconds(rows, "time").rename(columns=BYTES).sort_values("time_s", kind="stable")


def _during(rows: pd.DataFrame, repeat: RecordedRepeat) -> pd.DataFrame:
    return rows[(rows.start < repeat.stop) & (rows.stop > repeat.start)]


def worker_names(workers: pd.DataFrame) -> dict[str, str]:
    """Return a readable name for each address: the worker's own, if it has one."""
    connected = workers[workers.threads > 0].drop_duplicates("worker", keep="last")
    names = {}
    for address, name in zip(connected.worker, connected["name"], strict=True):
        own = address.rpartition("://")[2] if name == address else name
        names[address] = f"worker-{own}" if own.isdigit() else own
    return names


class _Workers:
    """The tables of all workers, with the name of each."""

    def __init__(self, tables: Mapping[str, Tables], names: Mapping[str, str]) -> None:
        self.tables, self.names = tables, names

    def name(self, address: str) -> str:
        return self.names.get(address, address)

    def names_of(self, addresses: str) -> str:
        return KEY_SEPARATOR.join(map(self.name, addresses.split(",")))

    def rows(self, table: str, column: str, address: bool = False) -> pd.DataFrame:
        """Return a table of all workers, whose names, or addresses, are in a column."""
        frames = [
            named(own[table], column, worker if address else self.name(worker))
            for worker, own in self.tables.items()
        ]
        return (
            pd.concat(frames, ignore_index=True)
            if frames
            else named(complete({}, "worker")[table], column, "")
        )

    def facts(self, name: str) -> dict[str, str]:
        """Return what each worker said of itself."""
        return {
            self.name(address): str(rows.value.iloc[-1])
            for address, own in self.tables.items()
            for rows in [own["about"][own["about"].name == name]]
            if len(rows)
        }

    @property
    def ahead(self) -> dict[str, float]:
        """By how much Dask moved each worker's stamps, at the end; by address."""
        return {
            address: float(own["delays"].delay.iloc[-1])
            for address, own in self.tables.items()
            if len(own["delays"])
        }


def each(function: Callable[[str], str], texts: pd.Series[str]) -> pd.Series[str]:
    """Apply a function to all texts of a column, once to each that differs."""
    codes, values = pd.factorize(texts)
    return pd.Series(
        np.array([function(value) for value in values] or [""], object)[codes], texts.index, object
    )


def named(rows: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """Return the rows with a name in a column: of objects, since pandas' own type of texts is slower."""
    return rows.assign(**{column: pd.Series(name, rows.index, object)})


def texts(column: pd.Series[str]) -> pd.Series[str]:
    """Return the column with empty texts where something is missing."""
    return column.astype(object).where(column.notna(), "")


def _seconds(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    return rows.rename(columns={column: f"{column}_s" for column in columns})


def _of_all(workers: _Workers, table: str, scheduler: Tables, client: Tables, **columns: str) -> pd.DataFrame:
    own = [named(scheduler[table], "node", SCHEDULER), named(client[table], "node", CLIENT)]
    frames = [frame for frame in (*own, workers.rows(table, "node")) if len(frame)]
    return pd.concat(frames or own, ignore_index=True).rename(columns=columns)


def _workers(rows: pd.DataFrame, names: Mapping[str, str], loops: Mapping[str, str]) -> pd.DataFrame:
    """Return a row per worker, with the times at which it joined and left."""
    joined = rows[rows.kind != "left"].drop_duplicates("worker")
    left = rows[rows.kind == "left"].drop_duplicates("worker", keep="last").set_index("worker").time
    joined = joined.assign(
        address=joined.worker,
        left_s=joined.worker.map(left),
        joined_s=joined.time.where(joined.kind == "joined"),
        worker=joined.worker.map(names),
    )
    return joined.assign(loop=joined.worker.map(loops))


def _tasks(scheduler: pd.DataFrame, workers: _Workers) -> pd.DataFrame:
    """Join what the scheduler and the workers know of each task: the n-th attempt of a key on a worker.

    A worker that was started again has a new address, and nothing to do with its former attempts.
    """
    theirs = scheduler.rename(columns=STAMPS_OF_SCHEDULER).sort_values("handled_s", kind="stable")
    ours = workers.rows("tasks", "worker", address=True).rename(columns=STAMPS_OF_WORKER | CPU_OF_TASKS)
    ours = ours.sort_values("done_s", kind="stable")
    theirs["worker"] = _workers_of_attempts(theirs, ours)
    _number_attempts(theirs, ours)
    rows = theirs.merge(ours, on=["pair", "has_result", "nth"], how="outer", suffixes=("_scheduler", ""))
    rows = rows.assign(
        key=rows["key"].where(rows["key"].notna(), rows.key_scheduler),
        worker=rows.worker.where(rows.worker.notna(), rows.worker_scheduler),
    )
    # of a worker that died, only what the scheduler knows: on the worker's clock as Dask corrected it
    corrected = rows.worker.map(workers.ahead).fillna(0.0)
    status = rows.status.astype(object).where(rows.status.notna(), rows.status_scheduler)
    return rows.assign(
        worker=each(workers.name, rows.worker),
        start_s=rows.start_s.fillna(rows.start - corrected),
        stop_s=rows.stop_s.fillna(rows.stop - corrected),
        thread=rows.thread.fillna(rows.thread_scheduler).fillna(0).astype(np.int64),
        disk_s=rows.disk.fillna(rows.disk_scheduler),
        nbytes=rows.nbytes.fillna(rows.nbytes_scheduler),
        status=status.replace(STATUS),
        trigger=texts(rows.trigger),
        stimulus=texts(rows.stimulus),
    )


def numbers(frames: Sequence[pd.DataFrame], *columns: str) -> list[Codes]:
    """Number the rows of several tables: the same number for the same texts in some columns.

    Joins and groups of numbers take a fraction of the time of those of texts.
    """
    number = np.zeros(sum(map(len, frames)), np.int64)
    for column in columns:
        codes, values = pd.factorize(
            np.concatenate([frame[column].to_numpy(object) for frame in frames]), use_na_sentinel=False
        )
        number, _ = pd.factorize(number * max(1, len(values)) + codes)
    return np.split(number, np.cumsum([len(frame) for frame in frames])[:-1])


def _number_attempts(theirs: pd.DataFrame, ours: pd.DataFrame) -> None:
    """Add to both tables the number of each row's key and worker, and which of their attempts it is.

    Where the scheduler knows of attempts that the worker does not, as of one that was called back before it
    ran, those that made a result are numbered apart from the others.
    """
    pairs = numbers((theirs, ours), "key", "worker")
    most = 1 + max(pair.max(initial=-1) for pair in pairs)
    counts, counts_of_ours = (np.bincount(pair, minlength=most) for pair in pairs)
    unequal = counts != counts_of_ours
    for frame, pair in zip((theirs, ours), pairs, strict=True):
        frame["pair"] = pair
        frame["has_result"] = (frame.status == "memory") & unequal[pair]
        frame["nth"] = frame.groupby(["pair", "has_result"], sort=False).cumcount()


def _workers_of_attempts(theirs: pd.DataFrame, ours: pd.DataFrame) -> pd.Series[str]:
    """Return where the attempts of tasks ran: the scheduler does not say it of those that failed.

    If it knows as many attempts of a key as the workers, the n-th of these is the n-th of those. Else the
    workers of failed attempts stay unknown.
    """
    decided = theirs[theirs.decided_s.notna()]
    key, key_of_ours = numbers((decided, ours), "key")
    numbered = [
        frame[["worker"]].assign(key=key, nth=groups.cumcount(), attempts=groups.transform("size"))
        for frame, key in ((decided, key), (ours, key_of_ours))
        for groups in [pd.Series(key, frame.index).groupby(key, sort=False)]
    ]
    pairs = (
        numbered[0]
        .reset_index()
        .merge(numbered[1], on=["key", "nth", "attempts"], how="left", suffixes=("", "_of_attempt"))
    )
    contradicts = (pairs.worker != "") & (pairs.worker != pairs.worker_of_attempt)
    fits = pairs.worker_of_attempt.notna() & ~contradicts.groupby(pairs.key, sort=False).transform("any")
    return theirs.worker.where(
        ~theirs.index.isin(pairs["index"][fits]), pairs.set_index("index").worker_of_attempt
    )


def _needs(workers: _Workers) -> pd.DataFrame:
    rows = workers.rows("needs", "worker")
    return rows.assign(holders=each(workers.names_of, rows.holders))


def _fetches(workers: _Workers) -> pd.DataFrame:
    """Join each fetch with how its peer served it: of the same keys, in order."""
    fetches, served = workers.rows("fetches", "receiver"), workers.rows("served", "sender")
    fetches = fetches.assign(sender=each(workers.name, fetches.peer)).sort_values("start", kind="stable")
    served = served.assign(receiver=each(workers.name, served.who)).sort_values("start", kind="stable")
    for frame, request in zip((fetches, served), numbers((fetches, served), *REQUEST), strict=True):
        frame["request"] = request
        frame["nth"] = frame.groupby(request, sort=False).cumcount()
    served = served.rename(
        columns={"start": "serve_start_s", "stop": "serve_stop_s", "serialise": "serialise_s"}
    )
    rows = fetches.merge(served.drop(columns=[*REQUEST]), on=["request", "nth"], how="left")
    return rows.rename(columns={"start": "start_s", "stop": "stop_s", "deserialise": "deserialise_s"})


def _shards(workers: _Workers) -> pd.DataFrame:
    rows = _seconds(workers.rows("shards", "sender"), "start", "stop")
    return rows.assign(receiver=each(workers.name, rows.peer))


def _machines(about: pd.DataFrame) -> pd.DataFrame:
    """Return what each process last said of its machine."""
    last = about.drop_duplicates(["node", "name"], keep="last").pivot(
        index="node", columns="name", values="value"
    )
    last = last.reindex(columns=["machine", "cpus"]).dropna().reset_index()
    return last.assign(cpus=last.cpus.astype(np.int64))


def _introduced(tasks: pd.DataFrame, graphs: pd.DataFrame) -> pd.DataFrame:
    """Return the graph and the client of each key; 0 and what is known of tasks that were there before."""
    first = tasks.sort_values("waiting", kind="stable").drop_duplicates("key")
    graph = first.graph.where(first.waiting.notna(), 0)
    client = graph.map(graphs.drop_duplicates("number").set_index("number").client).astype(object)
    return first.assign(graph=graph, client=client.where(client.notna(), texts(first.client)))


def _graphs(received: pd.DataFrame, departures: pd.DataFrame, client: str) -> pd.DataFrame:
    """Join what the client sent with what the scheduler received from it, in order."""
    received = received.sort_values("number", kind="stable")
    received["nth"] = received.groupby("client").cumcount()
    departures = departures.assign(client=client, nth=np.arange(len(departures)))
    rows = received.merge(departures, on=["client", "nth"], how="left")
    rows = _seconds(rows, "begin", "sent", "received", "materialise", "order", "state")
    return rows.assign(graph=rows.number, nbytes=rows.nbytes.fillna(0.0))
