"""From Dask's records of a trial's repeats to costs: of its tasks, of its event loops, of its client.

Several functions take ``granted``. An emulated machine does not notice when it stands still for other
machines, and counts that time as CPU time of its own processes. ``granted`` is the share of the counted CPU
time that the node's cores really gave; for other machines it is 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import gammaln

from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.repeat import SCHEDULER, Repeat
from dasklab.predict.calibration import TaskSamples
from dasklab.records import Frames
from dasklab.records.recorder.layout import KEY_SEPARATOR
from dasklab.records.recorder.process import CPU, WAITING_FOR_CPU
from dasklab.sim.costs import Costs, Role
from dasklab.sim.program import BARRIER

MAX_SAMPLES_OF_A_PREFIX = 400
# Assumed duration of a task that ran before the first repeat: it is not recorded, and does not matter.
PREPARED_S = 0.1
# No event loop takes longer for a byte. Without a bound the regression is wrong where few bytes are moved:
# results of long tasks, say, are then blamed for the time that the tasks took.
MAX_BYTE_S = 1e-8
MAX_TURN_S = 0.05  # of an event loop that only handles messages
SHARDS = r"p2p/[^/]+/foreground/shards/bytes"  # of a worker; the scheduler only hears of it in heartbeats


def task_samples(frames: Frames, granted: float = 1.0) -> dict[str, TaskSamples]:
    """Return the tasks of the timed repeats, by key prefix.

    Of results that were computed before the first repeat only the size is known.
    """
    recorded = _timed(frames, "tasks").dropna(subset=["start_s", "stop_s"])
    shares = cpu_shares(frames)
    by_prefix = {
        prefix: TaskSamples(
            samples=_thinned(
                _without_waiting(prefix, zip(rows.stop_s - rows.start_s, rows.nbytes, strict=True))
            ),
            cpu_share=shares.get(prefix, 1.0) * granted,
        )
        for prefix, rows in recorded.groupby(_prefixes(recorded.key))
    }
    needed = _timed(frames, "needs").drop_duplicates("needed")
    for prefix, rows in needed.groupby(_prefixes(needed.needed)):
        samples = _thinned((PREPARED_S, nbytes) for nbytes in rows.nbytes)
        by_prefix.setdefault(prefix, TaskSamples(samples=samples, cpu_share=0))
    return dict(sorted(by_prefix.items()))


def behind(frames: Frames, workers: Sequence[str]) -> tuple[int, ...]:
    """Return how many fewer results from before the repeats each worker holds than the worker with the most.

    Where the tasks that made them are short, the worker that first imported what they need computed nearly
    all of them: 20 of 24, for example. If nothing was prepared no worker is behind.
    """
    needs = frames["needs"]
    prepared = needs[~needs.needed.isin(frames["tasks"].key)].drop_duplicates("needed")
    holders = Counter(names.partition(KEY_SEPARATOR)[0] for names in prepared.holders if names)
    counts = [holders[name] for name in workers]
    return tuple(max(counts) - count for count in counts)


def _fetched_bytes(repeat: Repeat, worker: str) -> float:
    """Return the bytes that a worker fetched or served, as Dask estimates them."""
    node = repeat.node(worker)
    return float(repeat.moved[(repeat.fetches.receiver == node) | (repeat.fetches.sender == node)].sum())


def shuffled_bytes(frames: Frames) -> float:
    """Return the bytes that a transfer task of a peer-to-peer shuffle gives to all workers, incl. its own."""
    needs, metrics = _timed(frames, "needs"), _timed(frames, "metrics")
    transfers = needs[needs.key.str.startswith(BARRIER)].drop_duplicates(["repeat", "needed"])
    shards = metrics[metrics.metric.str.fullmatch(SHARDS)]
    return float(shards.value.sum()) / len(transfers) if len(transfers) else 0.0


def starved(frames: Frames, granted: float = 1.0) -> float:
    """Return the seconds that workers waited for a core, per second that they had one."""
    metrics = _timed(frames, "metrics")
    values = metrics[metrics.node != SCHEDULER].groupby("metric").value.sum()
    waited = float(values.get(WAITING_FOR_CPU, 0.0) / values[CPU]) if values.get(CPU) else 0.0
    return (1 + waited) / granted - 1


def available_cores(frames: Frames, repeats: Sequence[Repeat], cores: int, granted: float = 1.0) -> float:
    """Return how many of a machine's cores the lab's processes had when they wanted all of them.

    Other processes had the rest. How many of ours wanted a core is known on average only (what they had plus
    what they waited, over the repeats without the time in which the client computes alone); it is assumed to
    vary as if each came by itself (Poisson). If fewer wanted a core than there are, the records cannot tell,
    and the answer is all cores.
    """
    metrics = _timed(frames, "metrics")
    values = metrics.groupby("metric").value.sum()
    duration_s = sum(repeat.stop - repeat.start for repeat in repeats) - len(repeats) * driver_s(repeats)
    counted = float(values.get(CPU, 0.0)) / duration_s
    used, wanting = counted * granted, counted + float(values.get(WAITING_FOR_CPU, 0.0)) / duration_s
    if wanting < cores:
        return cores
    numbers = np.arange(cores)
    busy = cores - float(((cores - numbers) * poisson(numbers, wanting)).sum())
    return min(1.0, used / busy) * cores


def poisson(numbers: NDArray[np.int_], mean: float) -> NDArray[np.float64]:
    """Return the probabilities of these numbers."""
    probabilities: NDArray[np.float64] = np.exp(numbers * np.log(mean) - mean - gammaln(numbers + 1))
    return probabilities


def handoff_s(frames: Frames) -> float:
    """Return the mean time that a task takes from its worker's event loop to its thread, and back."""
    passed_s = _handoffs_s(frames)
    return max(0.0, float(passed_s.mean())) if len(passed_s) else 0.0


def _handoffs_s(frames: Frames) -> pd.Series[float]:
    recorded = _timed(frames, "tasks")
    passed_s: pd.Series[float] = recorded.start_s - recorded.executing_s + recorded.done_s - recorded.stop_s
    return passed_s.dropna()


def usual_turns(repeat: Repeat, busy: pd.DataFrame) -> Repeat:
    """Return a repeat whose event loops are busy as usual.

    Without the seconds for which a loop was kept from running, and at most MAX_TURN_S of each turn: modules
    that are imported for the first time, for example, cost no message anything.

    Args:
        busy: the table of that name, on the repeat's clock.
    """
    own = busy[busy.node.isin(repeat.places.nodes)]
    start = (own.start_s + own.late_s.fillna(0.0)).to_numpy(float)
    stop = np.maximum(start, np.minimum(own.stop_s.to_numpy(float), start + MAX_TURN_S))
    nodes = np.array([repeat.node(name) for name in own.node], np.int64)
    return replace(repeat, busy=IntervalSets(nodes, start, stop))


def usual_handoff_s(frames: Frames) -> float:
    """Return the median time that a task takes from its worker's event loop to its thread, and back."""
    passed_s = _handoffs_s(frames)
    return max(0.0, float(passed_s.median())) if len(passed_s) else 0.0


def loop_cpu(frames: Frames, repeats: Sequence[Repeat], granted: float = 1.0) -> dict[Role, float]:
    """Return the share of the event loops' busy time in which a core computed, by role.

    That is the CPU time of their processes without the CPU time of tasks. Where cores are simulated, waiting
    for a core would otherwise be counted twice: in a loop's busy intervals and in its wait for a core. A role
    is missing if the CPU time of its processes was not recorded.
    """
    metrics = _timed(frames, "metrics")
    cpu = metrics[metrics.metric == CPU]
    tasks_s = sum(cpu_s for cpu_s, _ in _thread_s(frames).values())
    roles: dict[Role, tuple[pd.Series[float], float, float]] = {
        "scheduler": (
            cpu[cpu.node == SCHEDULER].value,
            0.0,
            sum(repeat.busy_s(SCHEDULER) for repeat in repeats),
        ),
        "worker": (
            cpu[cpu.node != SCHEDULER].value,
            tasks_s,
            sum(repeat.busy_s(name) for repeat in repeats for name in repeat.threads),
        ),
    }
    return {
        role: max(0.0, float(process_s.sum()) - task_s) * granted / busy_s
        for role, (process_s, task_s, busy_s) in roles.items()
        if len(process_s) and busy_s
    }


def costs(repeats: Sequence[Repeat], ops: Mapping[Role, float]) -> dict[Role, Costs]:
    """Return the costs with which a repeat's operations keep the event loops as busy as they were recorded.

    Args:
        repeats: the recorded repeats.
        ops: operations of one repeat, by role.
    """
    byte_s = _byte_s(repeats)
    scheduler_s = sum(repeat.busy_s(SCHEDULER) for repeat in repeats) / len(repeats)
    worker_s = sum(
        repeat.busy_s(name) - byte_s * _fetched_bytes(repeat, name)
        for repeat in repeats
        for name in repeat.threads
    )
    return {
        "scheduler": Costs(op_s=scheduler_s / ops["scheduler"]),
        "worker": Costs(op_s=max(0.0, worker_s) / len(repeats) / ops["worker"], byte_s=byte_s),
    }


def driver_s(repeats: Sequence[Repeat]) -> float:
    """Return the median time of a repeat before its first task is assigned and after its last is handled."""
    ends = []
    for repeat in repeats:
        first = float(repeat.tasks.assigned.min()) if len(repeat.tasks) else repeat.start
        last = float(repeat.tasks.handled.max()) if len(repeat.tasks) else repeat.stop
        ends.append(max(0.0, first - repeat.start) + max(0.0, repeat.stop - last))
    return median(ends)


def _timed(frames: Frames, table: str):  # type: ignore[no-untyped-def]  # a DataFrame
    repeats, frame = frames["repeats"], frames[table]
    return frame[frame.repeat.isin(repeats[~repeats.warmup.astype(bool)].repeat)]


def _prefixes(keys: Iterable[str]) -> list[str]:
    from dask.utils import key_split

    return [str(key_split(key)) for key in keys]


def _without_waiting(prefix: str, samples: Iterable[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    """Keep only the shortest barrier of a shuffle: it waited least for data, and waiting is simulated."""
    return [min(samples)] if prefix == BARRIER else samples


def _thinned(samples: Iterable[tuple[float, float]]) -> tuple[tuple[float, int], ...]:
    """Keep every n-th sample, at most MAX_SAMPLES; an unknown size is 0."""
    rows = [(max(0.0, float(seconds)), 0 if nbytes != nbytes else int(nbytes)) for seconds, nbytes in samples]
    return tuple(rows[:: -(-len(rows) // MAX_SAMPLES_OF_A_PREFIX)])


def cpu_shares(frames: Frames) -> dict[str, float]:
    """Return the share of a task's time in which a core computed, by prefix."""
    return {
        prefix: cpu_s / (cpu_s + other_s) if cpu_s + other_s > 0 else 1.0
        for prefix, (cpu_s, other_s) in _thread_s(frames).items()
    }


def _thread_s(frames: Frames) -> dict[str, tuple[float, float]]:
    """Return the seconds of all tasks with and without a core, by prefix."""
    seconds: dict[tuple[str, str], float] = {}
    metrics = _timed(frames, "metrics")
    for name, value in metrics[metrics.node != SCHEDULER][["metric", "value"]].itertuples(index=False):
        if match := re.fullmatch(r"execute/[^/]*/(.+)/(?:thread|p2p-[a-z-]+)-(cpu|noncpu)/seconds", name):
            key = (match[1], match[2])
            seconds[key] = seconds.get(key, 0.0) + value
    prefixes = sorted({prefix for prefix, _ in seconds})
    return {
        prefix: (seconds.get((prefix, "cpu"), 0.0), seconds.get((prefix, "noncpu"), 0.0))
        for prefix in prefixes
    }


def _byte_s(repeats: Sequence[Repeat]) -> float:
    """Return what a byte costs a worker's event loop, by a regression on bytes and number of tasks."""
    nodes = [(repeat, name) for repeat in repeats for name in repeat.threads]
    counts = [
        (int((repeat.tasks.worker == repeat.node(name)).sum()), _fetched_bytes(repeat, name))
        for repeat, name in nodes
    ]
    busy = [repeat.busy_s(name) for repeat, name in nodes]
    if len(nodes) < 3 or not any(moved for _, moved in counts):
        return 0.0
    (_, per_byte), _ = nnls(np.array(counts, float), np.array(busy))
    return min(float(per_byte), MAX_BYTE_S)
