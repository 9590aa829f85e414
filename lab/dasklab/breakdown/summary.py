"""An account summed up: seconds by cause and place, of all threads and of the critical path; and differences.

Seconds of the account are thread-seconds divided by the number of threads: they add up to the makespan, as do
those of the critical path. Over several runs they are means. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dasklab.breakdown.bottlenecks import BUSY, LINK, PLACEMENT, culprits
from dasklab.breakdown.causes import MESSAGE, WIRE, Cell
from dasklab.breakdown.critical_path import critical_path
from dasklab.breakdown.graphs import Way, graphs
from dasklab.breakdown.partition import account
from dasklab.breakdown.replay import Replay, mean, replay
from dasklab.breakdown.run import Run


@dataclass(frozen=True)
class Summary:
    """Means over runs, in seconds."""

    makespan_s: float
    threads: int
    runs: int
    account: Mapping[Cell, float] = field(default_factory=dict)
    path: Mapping[Cell, float] = field(default_factory=dict)
    culprits: Mapping[Cell, float] = field(default_factory=dict)
    moved_bytes: float = 0.0
    replayed: Replay | None = None
    graphs: Way | None = None

    @cached_property
    def by_cause(self) -> dict[str, float]:
        """The account without places."""
        return summed(self.account)

    @cached_property
    def path_by_cause(self) -> dict[str, float]:
        """The critical path without places."""
        return summed(self.path)

    def ranked(self) -> list[tuple[str, str, float]]:
        """Culprits on the critical path, the greatest first: which, where (most of it), seconds."""
        return _ranked(self.culprits)


@dataclass(frozen=True)
class Difference:
    """One summary minus another, cell by cell; each adds up to the difference of the makespans."""

    old: Summary
    new: Summary

    @cached_property
    def makespan_s(self) -> float:
        """By how much it took longer."""
        return self.new.makespan_s - self.old.makespan_s

    @cached_property
    def account(self) -> dict[Cell, float]:
        """Of all threads."""
        return _minus(self.new.account, self.old.account)

    @cached_property
    def path(self) -> dict[Cell, float]:
        """Of the critical path."""
        return _minus(self.new.path, self.old.path)

    @cached_property
    def culprits(self) -> dict[Cell, float]:
        """Of the critical path. More data, at the old trial's seconds a byte, is the placement's.

        That a byte takes longer than it did is the link's, also for data that need not have moved in either.
        """
        old, new = (_as_links(one.culprits) for one in (self.old, self.new))
        cells, before = _minus(new, old), summed(old)
        more = self.new.moved_bytes / self.old.moved_bytes - 1 if self.old.moved_bytes else 0.0
        for name in (LINK, BUSY):
            grown = {cell: seconds for cell, seconds in cells.items() if cell[0] == name and seconds > 0}
            share = min(1.0, max(0.0, more * before.get(name, 0.0)) / sum(grown.values())) if grown else 0.0
            for (_, place), seconds in grown.items():
                cells[name, place] -= share * seconds
                cells[PLACEMENT, place] = cells.get((PLACEMENT, place), 0.0) + share * seconds
        return cells

    def ranked(self) -> list[tuple[str, str, float]]:
        """Culprits whose seconds on the critical path grew, the most first.

        Which host's link it is, all threads know better than the path, which may pass it once only.
        """
        on_wire = {cell: s for cell, s in self.account.items() if cell[0] in (WIRE, MESSAGE)}
        link = hosts({(LINK, place): seconds for (_, place), seconds in on_wire.items()}, LINK)
        at = next((host for host, _ in link if host != "scheduler"), "")
        return [(n, at if n == LINK and at else place, s) for n, place, s in _ranked(self.culprits)]


def summarise(runs: Sequence[Run]) -> Summary:
    """The mean of the accounts of several runs of the same work."""
    total: dict[str, dict[Cell, float]] = {
        name: defaultdict(float) for name in ("account", "path", "culprits")
    }
    for run in runs:
        threads = account(run)
        parts = (part for thread in threads for part in thread.parts)
        share = 1 / (len(runs) * max(1, len(threads)))
        _add(total["account"], ((part.cause, part.place, part.seconds) for part in parts), share)
        path = critical_path(run)
        _add(total["path"], ((part.cause, part.place, part.seconds) for part in path), 1 / len(runs))
        _add(total["culprits"], culprits(run, path), 1 / len(runs))
    return Summary(
        makespan_s=sum(run.makespan for run in runs) / max(1, len(runs)),
        threads=sum(runs[0].threads.values()) if runs else 0,
        runs=len(runs),
        moved_bytes=sum(map(moved_bytes, runs)) / max(1, len(runs)),
        replayed=mean([replay(run) for run in runs]),
        graphs=graphs(runs),
        **total,
    )


def moved_bytes(run: Run, worker: str | None = None) -> float:
    """What workers fetched from each other, in Dask's estimate of sizes; or what one fetched or served."""
    sizes = {need.key: need.nbytes for task in run.tasks for need in task.needs}
    told = [fetch for fetch in run.fetches if worker is None or worker in (fetch.receiver, fetch.sender)]
    return sum(sizes.get(key, 0.0) for fetch in told if not fetch.busy for key in fetch.keys)


def summed(cells: Mapping[Cell, float]) -> dict[str, float]:
    """Seconds by cause, whatever the place."""
    total: defaultdict[str, float] = defaultdict(float)
    for (cause, _), seconds in cells.items():
        total[cause] += seconds
    return dict(total)


def hosts(cells: Mapping[Cell, float], cause: str) -> list[tuple[str, float]]:
    """The hosts that a cause's seconds are about, most first: each pair counts for both of its ends."""
    total: defaultdict[str, float] = defaultdict(float)
    for (found, place), seconds in cells.items():
        if found == cause:
            for host in place.split(" < "):
                total[host] += seconds
    return sorted(total.items(), key=lambda item: -item[1])


def _ranked(cells: Mapping[Cell, float]) -> list[tuple[str, str, float]]:
    order = sorted(summed(cells).items(), key=lambda item: -item[1])
    return [(name, hosts(cells, name)[0][0], seconds) for name, seconds in order]


def _add(total: dict[Cell, float], found: Iterable[tuple[str, str, float]], share: float) -> None:
    for what, place, seconds in found:
        total[what, place] += seconds * share


def _as_links(cells: Mapping[Cell, float]) -> dict[Cell, float]:
    """Culprits with the time of avoidable data as the links'."""
    total: defaultdict[Cell, float] = defaultdict(float)
    _add(total, ((LINK if name == PLACEMENT else name, place, s) for (name, place), s in cells.items()), 1)
    return dict(total)


def _minus(new: Mapping[Cell, float], old: Mapping[Cell, float]) -> dict[Cell, float]:
    return {cell: new.get(cell, 0.0) - old.get(cell, 0.0) for cell in {**new, **old}}
