"""What a record knows beside times: settings, locks, network interfaces, retransmissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from dask.utils import key_split

from dasklab.breakdown.answers.facts.failures import Failures, failures
from dasklab.breakdown.answers.facts.memory import WorkerMemory, memory, thresholds
from dasklab.breakdown.model.arrays import floats
from dasklab.breakdown.model.repeat import SCHEDULER, Repeat
from dasklab.records.recorder.process import RETRANSMITTED
from dasklab.records.recorder.waits import HELD, NO_PRIMITIVES

FASTER = 2.0  # x as fast: another network interface is worth a word
SUMMED = ("calls", "metrics", "waits")  # tables whose rows of one repeat are summed up
EXCLUSIVE = ("Lock", "MultiLock", "Semaphore")  # primitives that tasks hold


@dataclass(frozen=True)
class PrimitiveUse:
    """A lock, semaphore, queue or event that tasks waited for.

    Attributes:
        kind: name of its class.
        waited_s: thread-seconds of waiting.
        holder: the kind of task that held it longest; empty if nothing is known of that.
    """

    kind: str
    name: str
    waited_s: float
    holder: str

    @property
    def is_exclusive(self) -> bool:
        return self.kind in EXCLUSIVE


@dataclass(frozen=True)
class SlowerInterface:
    """A worker that uses one network interface of its host although another one is faster."""

    worker: str
    used: str
    used_mbit: float
    faster: str
    faster_mbit: float


@dataclass(frozen=True)
class Facts:
    """What a record knows beside times.

    Attributes:
        settings: the scheduler's configuration below ``distributed``, as JSON.
        primitives: those that tasks waited for, the longest first.
        scattered: number of objects that the client scattered, of ``scattered_bytes``.
        retransmitted: TCP segments that each process's host sent again.
        slower_interface: one worker of those for which there is a faster interface.
        failures: what failed.
        memory: of each worker; of none where it was not recorded.
        memory_thresholds: shares of the limit from which on Dask does something, by their names.
        spilled_bytes: what workers wrote to disk and read back because memory was short.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    primitives: Sequence[PrimitiveUse] = ()
    scattered: int = 0
    retransmitted: Mapping[str, float] = field(default_factory=dict)
    slower_interface: SlowerInterface | None = None
    failures: Failures = field(default_factory=Failures)
    memory: Sequence[WorkerMemory] = ()
    memory_thresholds: Mapping[str, float] = field(default_factory=dict)
    spilled_bytes: float = 0.0
    scattered_bytes: float = 0.0

    def setting(self, name: str) -> str:
        """Return a setting without quotation marks; empty if it is unknown."""
        return self.settings.get(name, "").strip('"')


def facts(frames: Mapping[str, pd.DataFrame], repeat: int) -> Facts:
    """Collect what advice needs from the tables of a record.

    Args:
        repeat: the number of the one that the advice is about. Failures and memory, which have times, are of
            all repeats.
    """
    frames = {**frames, **{name: frames[name][frames[name].repeat == repeat] for name in SUMMED}}
    config, metrics = frames["config"], frames["metrics"]
    config = config[config.node == "scheduler"]
    scatters = frames["calls"][frames["calls"].kind == "scatter"]
    return Facts(
        settings=dict(zip(config.setting.astype(str), config.value.astype(str), strict=True)),
        primitives=_primitives(frames["waits"]),
        scattered=int(np.nansum(floats(scatters["keys"]))),
        scattered_bytes=float(np.nansum(floats(scatters.nbytes))),
        retransmitted=_by_node(metrics, RETRANSMITTED),
        slower_interface=_slower_interface(frames["interfaces"], frames["workers"]),
        failures=failures(frames),
        memory=memory(frames),
        memory_thresholds=thresholds(frames["config"]),
        spilled_bytes=_spilled_bytes(metrics, frames["memory"]),
    )


def _by_node(metrics: pd.DataFrame, name: str) -> dict[str, float]:
    rows = metrics[metrics.metric == name]
    return {str(node): float(own.value.sum()) for node, own in rows.groupby("node")}


def _spilled_bytes(metrics: pd.DataFrame, memory: pd.DataFrame) -> float:
    """Return the bytes that workers moved to and from disk: as they counted, else as heartbeats saw."""
    parts = metrics.metric.str.split("/")
    is_disk = parts.str[-2].isin(("disk-read", "disk-write")) & (parts.str[0] != "p2p")
    is_worker = metrics.node != SCHEDULER  # which has the sums of all workers
    counted = float(metrics[is_disk & is_worker & (parts.str[-1] == "bytes")].value.sum())
    return counted or float(np.nansum(floats(memory.groupby("worker").spilled_bytes.max())))


def _primitives(waits: pd.DataFrame) -> list[PrimitiveUse]:
    waits = waits.assign(seconds=floats(waits.stop_s) - floats(waits.start_s))
    holding, waited = waits[waits.kind == HELD], waits[~waits.kind.isin(NO_PRIMITIVES)]
    uses = []
    for (kind, name), rows in waited.groupby(["kind", "name"]):
        holds = holding[holding["name"] == name]
        by_prefix = holds.groupby(holds.key.map(key_split)).seconds.sum()
        holder = str(by_prefix.idxmax()) if len(by_prefix) else ""
        uses.append(PrimitiveUse(str(kind), str(name), float(rows.seconds.sum()), holder))
    return sorted(uses, key=lambda use: -use.waited_s)


def _slower_interface(interfaces: pd.DataFrame, workers: pd.DataFrame) -> SlowerInterface | None:
    """Find a worker whose address is not that of its host's fastest network interface."""
    listens = {
        str(worker): _host(str(address))
        for worker, address in zip(workers.worker, workers.address, strict=True)
    }
    for worker, rows in interfaces.groupby("node"):
        speeds = dict(zip(rows["name"].astype(str), rows.mbit.astype(float), strict=True))
        used = [str(name) for name in rows[rows.address == listens.get(str(worker))]["name"]]
        fastest = max(speeds, key=speeds.__getitem__)
        if used and speeds[fastest] >= FASTER * speeds[used[0]]:
            return SlowerInterface(str(worker), used[0], speeds[used[0]], fastest, speeds[fastest])
    return None


def _host(address: str) -> str:
    """Return the host of an address such as ``tcp://10.0.0.1:4000``."""
    return address.rpartition("://")[2].rpartition(":")[0].strip("[]")


def largest_results(repeat: Repeat) -> tuple[str, float]:
    """Return the kind of task whose results are largest together, and their bytes; each key counts once."""
    nbytes = np.zeros(len(repeat.keys))
    nbytes[repeat.tasks.key] = repeat.tasks.nbytes
    names, code = np.unique(np.array(repeat.prefixes, dtype=object), return_inverse=True)
    if not len(names):
        return "", 0.0
    total = np.bincount(code, nbytes)
    most = int(total.argmax())
    return str(names[most]), float(total[most])


def running_while_blocked(repeat: Repeat, worker: str, least_s: float) -> tuple[float, str]:
    """Return for how long a worker's event loop was blocked, and the kind of task that ran most of that time.

    Args:
        least_s: shorter busy intervals do not count.
    """
    node = repeat.node(worker)
    blocked = repeat.blocked(node, least_s)
    ends = np.array([repeat.start]), np.array([repeat.stop])
    seconds = float(blocked.within(np.array([node]), *ends)[0])
    own = np.flatnonzero(repeat.tasks.worker == node)
    beside = blocked.within(repeat.tasks.worker[own], repeat.tasks.start[own], repeat.tasks.stop[own])
    totals = np.bincount(repeat.prefix[own], beside, 1)
    most = int(totals.argmax())
    if totals[most] <= seconds / 2:
        return seconds, ""
    return seconds, repeat.prefixes[repeat.tasks.key[own[repeat.prefix[own] == most][0]]]
