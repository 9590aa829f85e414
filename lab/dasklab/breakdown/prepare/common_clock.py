"""From tables to repeats on one clock: the capture's where there is a capture, else the scheduler's."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import Floats
from dasklab.breakdown.model.repeat import CLIENT, SCHEDULER, Repeat
from dasklab.breakdown.model.stages import DUE_STAMPS, STAMPS, Process, clock_of
from dasklab.breakdown.prepare.clocks import NO_POINTS, Clock, at_least, at_most, estimate
from dasklab.breakdown.prepare.columns import build_repeat

Frames = Mapping[str, pd.DataFrame]
Clocks = Mapping[str, Clock]  # by process, against the reference
Delays = Mapping[tuple[str, str], "Delay"]  # from one host to another
STAMPED = {place: [f"{s}_s" for s in (*STAMPS, *DUE_STAMPS) if clock_of(s) is place] for place in Process}
CLOCKS = (  # table, the column that names the process or the process itself, columns of its times
    ("repeats", CLIENT, ["start_s", "stop_s"]),
    ("graphs", CLIENT, ["begin_s", "sent_s"]),
    ("calls", CLIENT, ["start_s", "stop_s"]),
    ("lines", CLIENT, ["start_s", "stop_s"]),
    ("graphs", SCHEDULER, ["received_s"]),
    ("events", SCHEDULER, ["time_s"]),
    ("results", SCHEDULER, ["time_s"]),
    ("workers", SCHEDULER, ["joined_s", "left_s"]),
    ("tasks", SCHEDULER, [*STAMPED[Process.SCHEDULER], "queued_s"]),
    ("tasks", "worker", [*STAMPED[Process.WORKER], "seceded_s"]),
    ("waits", "worker", ["start_s", "stop_s"]),
    ("actor_calls", "worker", ["start_s", "stop_s"]),
    ("fetches", "receiver", ["start_s", "stop_s"]),
    ("fetches", "sender", ["serve_start_s", "serve_stop_s"]),
    ("shards", "sender", ["start_s", "stop_s"]),
    ("busy", "node", ["start_s", "stop_s"]),
    ("pauses", "node", ["start_s", "stop_s"]),
    ("cpu", "node", ["time_s"]),
    ("stacks", "node", ["time_s"]),
)


class Delay(NamedTuple):
    """The least seconds that a message takes: from the sender to the bridge, then to the receiver."""

    before: float = 0.0
    after: float = 0.0

    @property
    def total(self) -> float:
        return self.before + self.after


def clocks_by_messages(frames: Frames, delays: Delays | None = None) -> dict[str, Clock]:
    """Estimate each process's clock against the scheduler's, from all repeats of the trial.

    Args:
        delays: known least delays, by sender and receiver.
    """
    least, clock = delays or {}, frames["clock"]
    clocks = {SCHEDULER: Clock(low_s=0.0, high_s=0.0)}
    clocks[CLIENT] = estimate(
        at_most(*_times(clock, "now_s", "answered_s"), delay_s=_least(least, SCHEDULER, CLIENT).total),
        at_least(*_times(clock, "asked_s", "now_s"), delay_s=_least(least, CLIENT, SCHEDULER).total),
    )
    for name, tasks in frames["tasks"].groupby("worker"):
        worker = str(name)
        clocks[worker] = estimate(
            at_most(*_times(tasks, "sent_s", "arrived_s"), delay_s=_least(least, SCHEDULER, worker).total),
            at_least(
                *_times(tasks, "reported_s", "handled_s"), delay_s=_least(least, worker, SCHEDULER).total
            ),
        )
    return clocks


def clocks_by_packets(
    frames: Frames, decoded_tasks: list[dict[str, object]], delays: Delays | None = None
) -> dict[str, Clock]:
    """Estimate each process's clock against the capture's, which is the client's.

    Args:
        decoded_tasks: what the decoder read from packets about each task.
        delays: known least delays, by sender and receiver.
    """
    least = delays or {}
    packets = pd.DataFrame(decoded_tasks, columns=["key", "start_s", "sent_ns", "finished_ns"]).dropna()
    packets = packets.astype(dict.fromkeys(packets.columns[1:], float))
    packets[["sent_ns", "finished_ns"]] /= 1e9
    joined = _nth_of_key(frames["tasks"]).merge(
        _nth_of_key(packets), on=["key", "nth"], suffixes=("", "_wire")
    )
    clocks, above, below = {CLIENT: Clock(low_s=0.0, high_s=0.0)}, [NO_POINTS], [NO_POINTS]
    for name, tasks in joined.groupby("worker"):
        worker = str(name)
        to_worker, to_scheduler = _least(least, SCHEDULER, worker), _least(least, worker, SCHEDULER)
        clocks[worker] = estimate(
            at_most(*_times(tasks, "sent_ns", "arrived_s"), delay_s=to_worker.after),
            at_least(*_times(tasks, "reported_s", "finished_ns"), delay_s=to_scheduler.before),
        )
        above.append(at_most(*_times(tasks, "finished_ns", "handled_s"), delay_s=to_scheduler.after))
        below.append(at_least(*_times(tasks, "sent_s", "sent_ns"), delay_s=to_worker.before))
    return clocks | {SCHEDULER: estimate(np.concatenate(above), np.concatenate(below))}


def to_common_clock(frames: Frames, clocks: Clocks) -> dict[str, pd.DataFrame]:
    """Return the tables that have times, with these on the common clock."""
    moved = {name: frame.copy(deep=False) for name, frame in frames.items() if "repeat" in frame}
    for table, process, columns in CLOCKS:
        frame = moved[table]
        is_name = process in (CLIENT, SCHEDULER)
        names = pd.Series(process, index=frame.index) if is_name else frame[process]
        for column in columns:
            frame[column] = _to_reference(names, frame[column].to_numpy(float), clocks)
    return moved


def build_repeats(aligned: Frames) -> list[Repeat]:
    """Return all repeats of tables whose times are on one clock."""
    by_repeat = {name: _by_repeat(frame) for name, frame in aligned.items()}
    return [
        build_repeat({name: by_repeat[name].get(number, frame[:0]) for name, frame in aligned.items()})
        for number in aligned["repeats"].repeat
    ]


def _by_repeat(rows: pd.DataFrame) -> dict[Hashable, pd.DataFrame]:
    """Return the rows of each repeat: of a single one, as in a record, all of them without a copy."""
    numbers = rows.repeat.unique().tolist()
    return {numbers[0]: rows} if len(numbers) == 1 else dict(iter(rows.groupby("repeat")))


def _nth_of_key(tasks: pd.DataFrame) -> pd.DataFrame:
    """Number the computations of each key by their start. Dask moves the starts that are on the wire."""
    started = tasks[tasks.start_s.notna()].sort_values("start_s", kind="stable")
    return started.assign(nth=started.groupby("key").cumcount())


def _least(delays: Delays, sender: str, receiver: str) -> Delay:
    return delays.get((sender, receiver), Delay())


def _times(frame: pd.DataFrame, first: str, second: str) -> tuple[Floats, Floats]:
    """Return two columns of times, where both are known."""
    complete = frame[[first, second]].astype(float).dropna()
    return complete[first].to_numpy(), complete[second].to_numpy()


def _to_reference(names: pd.Series[str], local: Floats, clocks: Clocks) -> Floats:
    """Convert times of several processes, each by its own clock; without an estimate they stay."""
    codes, processes = pd.factorize(names)
    estimates = [clocks.get(str(process), Clock()) for process in processes]
    offset, skew, at = (
        np.array([getattr(clock, field) for clock in estimates] or [0.0])[codes]
        for field in ("offset_s", "skew", "at_s")
    )
    return np.asarray(local - offset - skew * (local - offset - at), np.float64)
