"""What a record knows beside times, for advice: settings, locks, sizes, network interfaces, retransmissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from dask.utils import key_split

from dasklab.breakdown.run import Run

FASTER = 2.0  # times as fast
INFINIBAND_MBIT = 10_000.0  # at least, where the kernel does not say


@dataclass(frozen=True)
class LockUse:
    """A lock, semaphore, queue or event that tasks waited for, and the kind of task that held it longest."""

    kind: str
    name: str
    waited_s: float
    holder: str


@dataclass(frozen=True)
class SlowerInterface:
    """A node that uses one network interface although another one is faster."""

    node: str
    used: str
    faster: str


@dataclass(frozen=True)
class Facts:
    """What a record knows beside times.

    Attributes:
        settings: the scheduler's configuration below ``distributed``, as JSON.
        locks: those that tasks waited for, the longest first.
        scattered: number of objects that the client scattered.
        largest: the kind of task whose results are largest together; empty without results.
        retransmitted: TCP segments that each node sent again.
        busiest_during: for each worker the kind of task that ran while its event loop was held up.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    locks: Sequence[LockUse] = ()
    scattered: int = 0
    largest: str = ""
    retransmitted: Mapping[str, float] = field(default_factory=dict)
    slower_interface: SlowerInterface | None = None
    busiest_during: Mapping[str, str] = field(default_factory=dict)

    def setting(self, name: str) -> str:
        """Return a setting without quotation marks; empty if it is unknown."""
        return self.settings.get(name, "").strip('"')


def facts(frames: Mapping[str, pd.DataFrame], run: Run) -> Facts:
    """Collect what advice needs from the tables of a record."""
    config, calls = frames["config"], frames["calls"]
    settings = config[config.node == "scheduler"]
    lost = frames["metrics"][frames["metrics"].metric == "host/tcp-retransmitted/segments"]
    return Facts(
        settings=dict(zip(settings.setting.astype(str), settings.value.astype(str), strict=True)),
        locks=_locks(frames["waits"]),
        scattered=int(calls[calls.kind == "scatter"]["keys"].sum()),
        largest=_largest(frames["tasks"]),
        retransmitted={str(node): float(rows.value.sum()) for node, rows in lost.groupby("node")},
        slower_interface=_slower_interface(frames["interfaces"], frames["workers"]),
        busiest_during=_busiest_during(run),
    )


def _locks(waits: pd.DataFrame) -> list[LockUse]:
    waits = waits[waits.kind != "Client"].assign(seconds=waits.stop_s - waits.start_s)
    held, waited = waits[waits.kind == "held"], waits[waits.kind != "held"]
    uses = []
    for (kind, name), rows in waited.groupby(["kind", "name"]):
        holds = held[held["name"] == name]
        by_prefix = holds.groupby(holds.key.map(key_split)).seconds.sum()
        holder = str(by_prefix.idxmax()) if len(by_prefix) else ""
        uses.append(LockUse(str(kind), str(name), float(rows.seconds.sum()), holder))
    return sorted(uses, key=lambda use: -use.waited_s)


def _largest(tasks: pd.DataFrame) -> str:
    done = tasks[tasks.nbytes > 0].drop_duplicates("key")
    if not len(done):
        return ""
    total = done.groupby(done.key.map(key_split)).nbytes.sum()
    return f"{total.idxmax()} ({total.max() / 1e6:.0f} MB together)"


def _slower_interface(interfaces: pd.DataFrame, workers: pd.DataFrame) -> SlowerInterface | None:
    """Find a worker whose address is not that of its fastest network interface."""
    address = workers.address.astype(str).str.rpartition("://")[2].str.rpartition(":")[0].str.strip("[]")
    listens = dict(zip(workers.worker.astype(str), address, strict=True))
    for node, rows in interfaces[interfaces.mbit > 0].groupby("node"):
        used = rows[rows.address == listens.get(str(node))]
        fastest = rows.loc[rows.mbit.idxmax()]
        if len(used) and fastest.mbit >= FASTER * used.mbit.iloc[0]:
            return SlowerInterface(str(node), str(used["name"].iloc[0]), str(fastest["name"]))
    return None


def _busiest_during(run: Run) -> dict[str, str]:
    tasks, busy = run.tasks, run.busy
    if not len(tasks):
        return {}
    seconds = busy.within(tasks.worker, tasks.start, tasks.stop)
    table = pd.DataFrame({"worker": tasks.worker, "prefix": run.prefix, "seconds": seconds})
    total = table.groupby(["worker", "prefix"]).seconds.sum()
    names = dict(zip(run.prefix.tolist(), np.array(run.prefixes, object)[tasks.key].tolist(), strict=True))
    best = total[total > 0].groupby("worker").idxmax()
    return {run.places.nodes[int(worker)]: names[int(prefix)] for worker, prefix in best}
