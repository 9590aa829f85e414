"""From what Dask recorded of a trial's runs to costs: of its tasks, of its event loops, of its client."""

from __future__ import annotations

from typing import Any

import pandas as pd
from scipy.optimize import nnls

from lab.errors import LabError
from lab.inside import Frames
from lab.sim.calibration import Tasks
from lab.sim.costs import Costs

MOST = 400  # records of a prefix that are kept
CPU, WAITED = "process/cpu/seconds", "process/waiting-for-cpu/seconds"


class Recorded:
    """The timed runs of one trial."""

    def __init__(self, frames: Frames, where: str) -> None:
        runs = frames["runs"]
        self.runs = runs[~runs.warmup].set_index("run")
        if self.runs.empty:
            raise LabError(f"{where}: of no timed run anything was recorded inside Dask")
        self._frames = {
            name: frame[frame.run.isin(self.runs.index)] if "run" in frame else frame
            for name, frame in frames.items()
        }
        done = self._frames["tasks"].dropna(subset=["start_s", "stop_s"])
        self.done = done.assign(prefix=_prefixes(done.key), took_s=done.stop_s - done.start_s)

    def threads(self) -> int:
        """Of a worker."""
        return int(self._frames["workers"].threads.max())

    def tasks(self) -> dict[str, Tasks]:
        """By prefix; of what was computed before the first run only the size is known."""
        found = {
            str(prefix): Tasks(
                seen=_thinned(zip(rows.took_s, rows.nbytes, strict=True)),
                cpu_share=self._cpu_share(str(prefix)),
            )
            for prefix, rows in self.done.groupby("prefix")
        }
        needed = self._frames["needs"].drop_duplicates("needed")
        for prefix, rows in needed.groupby(_prefixes(needed.needed)):
            sizes = _thinned((0.0, size) for size in rows.nbytes)
            found.setdefault(str(prefix), Tasks(seen=sizes, cpu_share=0))
        return dict(sorted(found.items()))

    def _cpu_share(self, prefix: str) -> float:
        seconds = self._metric(rf"execute/[^/]*/{prefix}/thread-cpu/seconds", regex=True)
        rest = self._metric(rf"execute/[^/]*/{prefix}/thread-noncpu/seconds", regex=True)
        return seconds / (seconds + rest) if seconds + rest > 0 else 1.0

    def _metric(self, name: str, regex: bool = False) -> float:
        metrics = self._frames["metrics"]
        metrics = metrics[metrics.node != "scheduler"]
        same = metrics.metric.str.fullmatch(name) if regex else metrics.metric == name
        return float(metrics.value[same].sum())

    def starved(self) -> float:
        """Seconds that the workers waited for a core for each second that they had one."""
        had = self._metric(CPU)
        return self._metric(WAITED) / had if had else 0.0

    def busy_s(self, scheduler: bool) -> pd.Series[float]:
        """By run and node: for how long event loops were busy within the run."""
        spells = self._frames["spells"]
        spells = spells[(spells.node == "scheduler") == scheduler]
        start = spells.start_s.clip(lower=spells.run.map(self.runs.start_s))
        stop = spells.stop_s.clip(upper=spells.run.map(self.runs.stop_s))
        busy: pd.Series[float] = (stop - start).clip(lower=0)
        return busy.groupby([spells.run, spells.node]).sum()

    def byte_s(self) -> float:
        """What a byte more costs a worker's event loop, beside what its tasks cost it."""
        busy = self.busy_s(scheduler=False)
        counted = self.done.groupby(["run", "worker"]).size().rename_axis(["run", "node"])
        moved = self.moved()
        table = pd.DataFrame({"tasks": counted, "bytes": moved}).reindex(busy.index).fillna(0.0)
        if len(table) < 3 or not moved.sum():
            return 0.0
        (_, per_byte), _ = nnls(table.to_numpy(float), busy.to_numpy(float))
        return float(per_byte)

    def moved(self) -> pd.Series[float]:
        """By run and worker: bytes that it fetched or served."""
        sizes = self._frames["needs"].drop_duplicates("needed").set_index("needed").nbytes
        fetches = self._frames["fetches"]
        fetches = fetches[fetches.status == "OK"]
        fetched = fetches.assign(bytes=[float(sizes.reindex(list(keys)).sum()) for keys in fetches["keys"]])
        ends = [fetched.groupby(["run", end]).bytes.sum().rename_axis(["run", "node"]) for end in _ENDS]
        return ends[0].add(ends[1], fill_value=0.0)

    def costs(self, scheduler_ops: float, worker_ops: float) -> dict[Any, Costs]:
        """Of an operation, so that all operations of a run keep the loops as busy as they were."""
        runs, byte_s = len(self.runs), self.byte_s()
        scheduler = float(self.busy_s(scheduler=True).sum()) / runs
        worker = (
            max(0.0, float(self.busy_s(scheduler=False).sum()) - byte_s * float(self.moved().sum())) / runs
        )
        return {
            "scheduler": Costs(op_s=scheduler / scheduler_ops),
            "worker": Costs(op_s=worker / worker_ops, byte_s=byte_s),
        }

    def driver_s(self) -> float:
        """Median of what a run takes before the scheduler has its first task and after its last has ended."""
        tasks = self.done.groupby("run")
        answered = (self.runs.now_s > self.runs.asked_s) & (self.runs.now_s < self.runs.answered_s)
        middle = (self.runs.asked_s + self.runs.answered_s) / 2
        ahead = (self.runs.now_s - middle).where(~answered, 0.0)  # of the scheduler's clock, if it is
        before = tasks.waiting_s.min() - ahead - self.runs.start_s
        after = self.runs.stop_s - (tasks.handled_s.max() - ahead)
        return max(0.0, float((before.clip(lower=0) + after.clip(lower=0)).median()))


_ENDS = ("receiver", "sender")


def _prefixes(keys: Any) -> list[str]:
    from dask.utils import key_split

    return [str(key_split(key)) for key in keys]


def _thinned(pairs: Any) -> tuple[tuple[float, int], ...]:
    rows: list[tuple[float, int]] = [(max(0.0, float(took)), int(size or 0)) for took, size in pairs]
    return tuple(rows[:: -(-len(rows) // MOST)])
