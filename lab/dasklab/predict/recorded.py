"""From what Dask recorded of a trial's runs to costs: of its tasks, of its event loops, of its client."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import gammaln

from dasklab.breakdown.run import SCHEDULER, Run
from dasklab.breakdown.summary import moved_bytes
from dasklab.predict.calibration import Tasks
from dasklab.record import Frames
from dasklab.sim.cluster.shuffle import BARRIER
from dasklab.sim.costs import Costs, Role

MOST = 400  # records of a prefix that are kept
PREPARED_S = 0.1  # what a task takes that was computed before the first run: nobody knows, nor needs to
# No event loop takes longer for a byte. Where few are moved, as results of what takes longest, a regression
# takes for theirs what that took.
MOST_BYTE_S = 1e-8
SHARDS = "p2p/foreground/shards/bytes"
CPU, WAITED = "process/cpu/seconds", "process/waiting-for-cpu/seconds"


def tasks(frames: Frames, given: float = 1.0) -> dict[str, Tasks]:
    """By prefix, of the timed runs; of what was computed before the first run only the size is known.

    Here and below ``given`` is which share of the CPU time that a machine counts its node's cores gave it.
    """
    done = _timed(frames, "tasks").dropna(subset=["start_s", "stop_s"])
    shares = _cpu_shares(frames)
    found = {
        prefix: Tasks(
            seen=_thinned(_own(prefix, zip(rows.stop_s - rows.start_s, rows.nbytes, strict=True))),
            cpu_share=shares.get(prefix, 1.0) * given,
        )
        for prefix, rows in done.groupby(_prefixes(done.key))
    }
    needed = _timed(frames, "needs").drop_duplicates("needed")
    for prefix, rows in needed.groupby(_prefixes(needed.needed)):
        found.setdefault(
            prefix, Tasks(seen=_thinned((PREPARED_S, size) for size in rows.nbytes), cpu_share=0)
        )
    return dict(sorted(found.items()))


def behind(frames: Frames, workers: Sequence[str]) -> tuple[int, ...]:
    """By how many results from before the first run each worker holds fewer than the one with most.

    Where such tasks are short, whichever worker has first imported what they need computes nearly all of
    them: 20 of 24, say. No worker is behind where nothing was prepared.
    """
    needs = frames["needs"]
    prepared = needs[~needs.needed.isin(frames["tasks"].key)].drop_duplicates("needed")
    holders = Counter(str(names[0]) for names in prepared.holders if len(names))
    held = [holders[name] for name in workers]
    return tuple(max(held) - count for count in held)


def shuffled_bytes(frames: Frames) -> float:
    """What a transfer task of peer-to-peer shuffles gives to all workers, its own included."""
    needs, metrics = _timed(frames, "needs"), _timed(frames, "metrics")
    transfers = needs[needs.key.str.startswith(BARRIER)].drop_duplicates(["run", "needed"])
    return float(metrics[metrics.metric == SHARDS].value.sum()) / len(transfers) if len(transfers) else 0.0


def _timed(frames: Frames, table: str):  # type: ignore[no-untyped-def]  # a frame of pandas
    runs, frame = frames["runs"], frames[table]
    return frame[frame.run.isin(runs[~runs.warmup.astype(bool)].run)]


def _prefixes(keys: Iterable[str]) -> list[str]:
    from dask.utils import key_split

    return [str(key_split(key)) for key in keys]


def _own(prefix: str, pairs: Iterable[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    """A shuffle's barrier waits for data; the shortest waited least, and the rest the simulation finds."""
    return [min(pairs)] if prefix == BARRIER else pairs


def _thinned(pairs: Iterable[tuple[float, float]]) -> tuple[tuple[float, int], ...]:
    rows = [(max(0.0, float(took)), 0 if size != size else int(size)) for took, size in pairs]
    return tuple(rows[:: -(-len(rows) // MOST)])


def _cpu_shares(frames: Frames) -> dict[str, float]:
    """By prefix: which share of a task's time a core computed."""
    return {
        prefix: cpu / (cpu + rest) if cpu + rest > 0 else 1.0
        for prefix, (cpu, rest) in _thread_s(frames).items()
    }


def _thread_s(frames: Frames) -> dict[str, tuple[float, float]]:
    """By prefix: seconds of all tasks that a core computed, and that passed without one."""
    seconds: dict[tuple[str, str], float] = {}
    metrics = _timed(frames, "metrics")
    for name, value in metrics[metrics.node != SCHEDULER][["metric", "value"]].itertuples(index=False):
        if said := re.fullmatch(r"execute/[^/]*/(.+)/(?:thread|p2p-[a-z-]+)-(cpu|noncpu)/seconds", name):
            key = (said[1], said[2])
            seconds[key] = seconds.get(key, 0.0) + value
    kinds = ("cpu", "noncpu")
    prefixes = sorted({prefix for prefix, _ in seconds})
    found = {prefix: tuple(seconds.get((prefix, kind), 0.0) for kind in kinds) for prefix in prefixes}
    return {prefix: (cpu, rest) for prefix, (cpu, rest) in found.items()}


def starved(frames: Frames, given: float = 1.0) -> float:
    """Seconds that the workers waited for a core for each second that they had one."""
    metrics = _timed(frames, "metrics")
    values = metrics[metrics.node != SCHEDULER].groupby("metric").value.sum()
    waited = float(values.get(WAITED, 0.0) / values[CPU]) if values.get(CPU) else 0.0
    return (1 + waited) / given - 1


def cores_had(frames: Frames, runs: Sequence[Run], cores: int, given: float = 1.0) -> float:
    """Of a machine's cores those that the lab's processes had when they wanted all; others had the rest.

    They want none while the client builds a graph alone. How many processes wanted one else is known on
    average only: it is taken to vary as if each came by itself (Poisson). Where on average fewer wanted one
    than there are, nothing is told: then it is all.
    """
    metrics = _timed(frames, "metrics")
    values = metrics.groupby("metric").value.sum()
    lasted_s = sum(run.stop - run.start for run in runs) - len(runs) * driver_s(runs)
    counted = float(values.get(CPU, 0.0)) / lasted_s
    had, wanting = counted * given, counted + float(values.get(WAITED, 0.0)) / lasted_s
    if wanting < cores:
        return cores
    numbers = np.arange(cores)
    busy = cores - float(((cores - numbers) * poisson(numbers, wanting)).sum())
    return min(1.0, had / busy) * cores


def poisson(numbers: NDArray[np.int_], mean: float) -> NDArray[np.float64]:
    """How likely these numbers are."""
    likely: NDArray[np.float64] = np.exp(numbers * np.log(mean) - mean - gammaln(numbers + 1))
    return likely


def handoff_s(frames: Frames) -> float:
    """What passes from a worker's loop to its task's thread and back, for each task: the mean."""
    done = _timed(frames, "tasks")
    passed = (done.start_s - done.executing_s) + (done.done_s - done.stop_s)
    return max(0.0, float(passed.mean())) if passed.notna().any() else 0.0


def loop_cpu(frames: Frames, runs: Sequence[Run], given: float = 1.0) -> dict[Role, float]:
    """Which share of what kept event loops busy a core computed: what processes had, less what tasks had.

    Without it, waiting for a core would be counted twice where cores are simulated: in a loop's busy spells
    and in its wait for a core. Empty where the processes' CPU was not recorded.
    """
    metrics = _timed(frames, "metrics")
    had = metrics[metrics.metric == CPU]
    tasks_s = sum(cpu for cpu, _ in _thread_s(frames).values())
    nodes: dict[Role, tuple[pd.Series[float], float, float]] = {
        "scheduler": (had[had.node == SCHEDULER].value, 0.0, sum(run.busy_s(SCHEDULER) for run in runs)),
        "worker": (
            had[had.node != SCHEDULER].value,
            tasks_s,
            sum(run.busy_s(name) for run in runs for name in run.threads),
        ),
    }
    return {
        role: max(0.0, float(cpu.sum()) - theirs) * given / busy_s
        for role, (cpu, theirs, busy_s) in nodes.items()
        if len(cpu) and busy_s
    }


def costs(runs: Sequence[Run], ops: Mapping[Role, float]) -> dict[Role, Costs]:
    """Of an operation, so that the ``ops`` of a run keep event loops as busy as they were."""
    byte_s = _byte_s(runs)
    scheduler = sum(run.busy_s(SCHEDULER) for run in runs) / len(runs)
    worker = sum(run.busy_s(name) - byte_s * moved_bytes(run, name) for run in runs for name in run.threads)
    return {
        "scheduler": Costs(op_s=scheduler / ops["scheduler"]),
        "worker": Costs(op_s=max(0.0, worker) / len(runs) / ops["worker"], byte_s=byte_s),
    }


def _byte_s(runs: Sequence[Run]) -> float:
    """What a byte more costs a worker's event loop, beside what its tasks cost it."""
    nodes = [(run, name) for run in runs for name in run.threads]
    counted = [
        (int((run.tasks.worker == run.node(name)).sum()), moved_bytes(run, name)) for run, name in nodes
    ]
    busy = [run.busy_s(name) for run, name in nodes]
    if len(nodes) < 3 or not any(moved for _, moved in counted):
        return 0.0
    (_, per_byte), _ = nnls(np.array(counted, float), np.array(busy))
    return min(float(per_byte), MOST_BYTE_S)


def driver_s(runs: Sequence[Run]) -> float:
    """Median of what a run takes before its first task is given away and after its last is dealt with."""
    ends = []
    for run in runs:
        first = float(run.tasks.assigned.min()) if len(run.tasks) else run.start
        last = float(run.tasks.handled.max()) if len(run.tasks) else run.stop
        ends.append(max(0.0, first - run.start) + max(0.0, run.stop - last))
    return median(ends)
