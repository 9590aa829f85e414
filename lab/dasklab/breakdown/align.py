"""From a trial's tables to runs on one clock: the capture's where there is one, else the scheduler's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dasklab.breakdown.busy import Spells
from dasklab.breakdown.clocks import NONE, Clock, at_least, at_most, estimate
from dasklab.breakdown.run import CLIENT, SCHEDULER, Fetch, Graph, Need, Run, Task

Frames = Mapping[str, pd.DataFrame]
Delays = Mapping[tuple[str, str], "Delay"]  # known, from one host to another
Row = dict[str, Any]
Steps = list[tuple[float, int]]
OURS = ("decided", "due", "sent", "handled")  # stages of a task by the scheduler's clock, and by its worker's
THEIRS = ("arrived", "ready", "executing", "start", "stop", "done", "report_due", "reported")
OPEN = ("waiting", "queued", "no-worker", "processing")  # states of tasks that are known and not done
OF_SCHEDULER = (
    ("tasks", tuple(f"{stage}_s" for stage in OURS)),
    ("transitions", ("time_s",)),
    ("graphs", ("received_s",)),
)
MOVED = (  # table, column that says whose clock, columns of times
    ("tasks", "worker", tuple(f"{stage}_s" for stage in THEIRS)),
    ("fetches", "receiver", ("start_s", "stop_s")),
    ("fetches", "sender", ("serve_start_s", "serve_stop_s")),
    ("spells", "node", ("start_s", "stop_s")),
)


class Delay(NamedTuple):
    """Seconds that a way takes at least: from the sender to the bridge, and from there to the receiver."""

    before: float = 0.0
    after: float = 0.0


def clocks(frames: Frames, delays: Delays | None = None) -> dict[str, Clock]:
    """Each process's clock against the scheduler's, from all runs of the trial."""
    known, runs = delays or {}, frames["runs"]
    there, back = (sum(known.get(way, Delay())) for way in ((SCHEDULER, CLIENT), (CLIENT, SCHEDULER)))
    found = {SCHEDULER: Clock(low_s=0.0, high_s=0.0)}
    found[CLIENT] = estimate(
        at_most(*_times(runs, "now_s", "answered_s"), delay_s=there),
        at_least(*_times(runs, "asked_s", "now_s"), delay_s=back),
    )
    for name, tasks in frames["tasks"].groupby("worker"):
        worker = str(name)
        there, back = (sum(known.get(way, Delay())) for way in ((SCHEDULER, worker), (worker, SCHEDULER)))
        found[worker] = estimate(
            at_most(*_times(tasks, "sent_s", "arrived_s"), delay_s=there),
            at_least(*_times(tasks, "reported_s", "handled_s"), delay_s=back),
        )
    return found


def clocks_by_packets(frames: Frames, seen: list[Row], delays: Delays | None = None) -> dict[str, Clock]:
    """Each process's clock against the capture's, which is the client's; ``seen``: the decoder's tasks."""
    known = delays or {}
    packets = pd.DataFrame(seen, columns=["key", "start_s", "sent_ns", "finished_ns"]).dropna()
    packets = packets.astype(dict.fromkeys(packets.columns[1:], float))
    packets[["sent_ns", "finished_ns"]] /= 1e9
    joined = frames["tasks"].merge(packets, on=["key", "start_s"])  # a key may come again, its stamp does not
    found, above, below = {CLIENT: Clock(low_s=0.0, high_s=0.0)}, [NONE], [NONE]
    for name, tasks in joined.groupby("worker"):
        worker = str(name)
        there, back = known.get((SCHEDULER, worker), Delay()), known.get((worker, SCHEDULER), Delay())
        found[worker] = estimate(
            at_most(*_times(tasks, "sent_ns", "arrived_s"), delay_s=there.after),
            at_least(*_times(tasks, "reported_s", "finished_ns"), delay_s=back.before),
        )
        above.append(at_most(*_times(tasks, "finished_ns", "handled_s"), delay_s=back.after))
        below.append(at_least(*_times(tasks, "sent_s", "sent_ns"), delay_s=there.before))
    return found | {SCHEDULER: estimate(np.concatenate(above), np.concatenate(below))}


def runs(frames: Frames, found: Mapping[str, Clock]) -> list[Run]:
    """All runs of a trial on the common clock."""
    rows = {name: _by_run(frame) for name, frame in _aligned(frames, found).items() if "run" in frame}
    return [_run(number, {name: of.get(number, []) for name, of in rows.items()}) for number in rows["runs"]]


def _times(frame: pd.DataFrame, first: str, second: str) -> tuple[Any, Any]:
    """Two columns of times, where both are known."""
    known = frame[[first, second]].astype(float).dropna()
    return known[first].to_numpy(), known[second].to_numpy()


def _aligned(frames: Frames, found: Mapping[str, Clock]) -> dict[str, pd.DataFrame]:
    """The same tables with all times on the common clock."""
    own = {name: frame.copy() for name, frame in frames.items()}
    for table, times in OF_SCHEDULER:
        _move(own[table], slice(None), times, found.get(SCHEDULER, Clock()))
    for table, times in (("runs", ("start_s", "stop_s")), ("graphs", ("begin_s", "sent_s"))):
        _move(own[table], slice(None), times, found.get(CLIENT, Clock()))
    for table, by, columns in MOVED:
        for node in own[table][by].unique():
            _move(own[table], own[table][by] == node, columns, found.get(str(node), Clock()))
    return own


def _move(frame: pd.DataFrame, rows: Any, columns: Iterable[str], clock: Clock) -> None:
    for column in columns:
        frame[column] = frame[column].astype(float)
        frame.loc[rows, column] = clock.to_reference(frame.loc[rows, column].to_numpy(float))


def _by_run(frame: pd.DataFrame) -> dict[int, list[Row]]:
    """Rows as plain values, null where nothing is known."""
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in frame.to_dict("records"):
        plain = {str(k): None if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()}
        found[int(row["run"])].append(plain)
    return found


def _run(number: int, rows: Mapping[str, list[Row]]) -> Run:
    about = rows["runs"][0]
    start, stop = about["start_s"], about["stop_s"]
    needs, spells = defaultdict(list), defaultdict(list)
    for row in rows["needs"]:
        needs[row["key"], row["worker"]].append(_need(row))
    for row in rows["spells"]:
        spells[row["node"]].append((row["start_s"], row["stop_s"]))
    during = [row for row in rows["tasks"] if row["start_s"] is not None and start < row["stop_s"]]
    tasks = [_task(row, tuple(needs[row["key"], row["worker"]])) for row in during if row["start_s"] < stop]
    unfinished, queued = _counts(rows["transitions"])
    return Run(
        number=number,
        start=start,
        stop=stop,
        threads={row["worker"]: int(row["threads"]) for row in rows["workers"]},
        tasks=tasks,
        fetches=[_fetch(row) for row in rows["fetches"]],
        busy={node: Spells(some) for node, some in spells.items()},
        unfinished=unfinished,
        queued=queued,
        warmup=bool(about["warmup"]),
        graphs=[_graph(row) for row in rows["graphs"]],
    )


def _task(row: Row, needs: tuple[Need, ...]) -> Task:
    known: Row = {stage: row[f"{stage}_s"] for stage in OURS + THEIRS}
    known |= {name: row[name] or "" for name in ("key", "worker", "trigger", "stimulus")}
    return Task(**known, thread=int(row["thread"] or 0), disk=row["disk_s"] or 0.0, needs=needs)


def _need(row: Row) -> Need:
    return Need(row["needed"], float(row["nbytes"] or 0), tuple(row["holders"]))


def _fetch(row: Row) -> Fetch:
    return Fetch(
        receiver=row["receiver"],
        sender=row["sender"],
        start=row["start_s"],
        stop=row["stop_s"],
        keys=tuple(row["keys"]),
        busy=row["status"] == "busy",
        serve_start=row["serve_start_s"],
        serialise=row["serialise_s"] or 0.0,
        deserialise=row["deserialise_s"] or 0.0,
    )


def _graph(row: Row) -> Graph:
    known = {
        name: row[f"{name}_s"] for name in ("begin", "sent", "received", "materialise", "order", "state")
    }
    return Graph(**known, tasks=int(row["tasks"]), nbytes=int(row["nbytes"]))


def _counts(log: list[Row]) -> tuple[Steps, Steps]:
    """How many tasks were known and not done, and how many were kept back, from when on."""
    unfinished: set[str] = set()
    queued: set[str] = set()
    steps: tuple[Steps, Steps] = ([], [])
    for row in sorted(log, key=lambda row: row["time_s"]):
        _note(unfinished, row["key"], row["finish"] in OPEN)
        _note(queued, row["key"], row["finish"] == "queued")
        for mine, kept in zip(steps, (unfinished, queued), strict=True):
            if not mine or mine[-1][1] != len(kept):
                mine.append((row["time_s"], len(kept)))
    return steps


def _note(kept: set[str], key: str, here: bool) -> None:
    if here:
        kept.add(key)
    else:
        kept.discard(key)
