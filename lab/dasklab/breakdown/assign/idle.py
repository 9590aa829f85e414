"""Why a thread without a task had none: what the rest of the cluster was doing at that time.

In this order: the scheduler knew of no unfinished task (then the client's time says why); another worker
had more tasks than threads (that worker is the place, the most crowded one if there are several); the
scheduler kept tasks back; no further task could run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dasklab.breakdown.assign.client_time import ClientTime
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, expand
from dasklab.breakdown.model.causes import CAUSES, NOTHING, PAUSED, PLAN, QUEUE, UNDIVIDED
from dasklab.breakdown.model.intervals import Windows
from dasklab.breakdown.model.repeat import CLIENT_CODE, SCHEDULER_CODE, Repeat
from dasklab.breakdown.model.step_function import StepFunction

# kinds of gaps on a path that are not the arrival of a graph
NO_GRAPH, BY_CLIENT = NONE, -2
CLIENT_PLACES = {PLAN: SCHEDULER_CODE, UNDIVIDED: NONE}
UNREPORTED_PREPARATION_S = 0.05  # what preparing a graph takes beside the stages that Dask reports


@dataclass(frozen=True)
class IdleReasons:
    """Answers for one repeat why threads were idle."""

    repeat: Repeat

    def explain(self, windows: Windows, rows: Codes, worker: Codes, start: Floats, stop: Floats) -> None:
        """Add idle time to some windows.

        Args:
            worker: whose thread was idle; ``NONE`` for the critical path, which belongs to no worker. That
                others had too many tasks does not say what the path waited for.
            start, stop: the idle time of each window.
        """
        index, start, stop = self._split(start, stop)
        rows, worker = rows[index], worker[index]
        unfinished, queued = self.repeat.unfinished.at(start), self.repeat.queued.at(start)
        crowded = self._most_crowded(worker, start)
        is_client, has_crowded, is_path = unfinished == 0, crowded != NONE, worker == NONE
        is_queue = ~is_client & ~is_path & (has_crowded | (queued > 0))
        is_nothing = ~is_client & ~is_path & ~is_queue
        for mask, cause, place in (
            (is_queue, QUEUE, np.where(has_crowded, crowded, SCHEDULER_CODE)),
            (is_nothing, NOTHING, worker),
            (~is_client & is_path, UNDIVIDED, worker),
        ):
            windows.add(rows[mask], start[mask], stop[mask], cause, place[mask])
        self._explain_client(windows, rows[is_client], start[is_client], stop[is_client])

    def explain_gaps(self, windows: Windows, kind: Codes, worker: Codes) -> None:
        """Fill gaps on the critical path.

        Args:
            kind: of each window the graph whose arrival ended it; ``BY_CLIENT`` where the client alone was at
                work, ``NO_GRAPH`` where the reason is the state of the cluster.
            worker: where the task ran that came after each gap; ``NONE`` if there is none.
        """
        rows, start, stop = np.arange(len(kind)), windows.start, windows.stop
        idle = rows[kind == NO_GRAPH]
        self.explain(windows, idle, np.full(len(idle), NONE), start[idle], stop[idle])
        arrival = np.array([*(graph.received for graph in self.repeat.graphs), np.inf])[np.maximum(kind, -1)]
        arrival = np.clip(np.where(kind >= 0, arrival, np.inf), start, stop)
        client = rows[kind != NO_GRAPH]
        index, *ends = self._split(start[client], arrival[client])
        self._explain_client(windows, client[index], *ends)
        self._explain_planned(windows, client, kind[client], arrival[client], stop[client], worker[client])

    def _explain_planned(
        self,
        windows: Windows,
        rows: Codes,
        graph: Codes,
        arrival: Floats,
        stop: Floats,
        worker: Codes,
    ) -> None:
        """Explain the time from the arrival of a graph to the choice of a worker for its first task.

        The scheduler reported for how long it prepared the graph. What lies after that is no preparation. A
        worker that was paused could not be chosen.
        """
        spent = [(g.materialise, g.order, g.state) for g in self.repeat.graphs]
        seconds = np.nansum(np.array([*spent, (0.0, 0.0, 0.0)], float), axis=1)[np.maximum(graph, -1)]
        ready = np.minimum(stop, arrival + seconds + UNREPORTED_PREPARATION_S)
        windows.add(rows, arrival, ready, PLAN, np.full(len(rows), SCHEDULER_CODE))
        chosen = np.where(worker == NONE, SCHEDULER_CODE, worker)  # the scheduler is never paused
        resumed = stop - self.repeat.evidence.paused.within(chosen, ready, stop)
        windows.add(rows, ready, resumed, UNDIVIDED, np.full(len(rows), NONE))
        windows.add(rows, resumed, stop, PAUSED, chosen)

    def _explain_client(self, windows: Windows, rows: Codes, start: Floats, stop: Floats) -> None:
        codes = self.client.cause_at(start)
        for code in np.unique(codes).tolist():
            mask = codes == code
            place = np.full(int(mask.sum()), CLIENT_PLACES.get(CAUSES[code], CLIENT_CODE))
            windows.add(rows[mask], start[mask], stop[mask], CAUSES[code], place)

    @cached_property
    def client(self) -> ClientTime:
        return ClientTime(self.repeat)

    def _split(self, start: Floats, stop: Floats) -> tuple[Codes, Floats, Floats]:
        """Cut intervals where a reason changes: the interval that each piece is of, and its ends."""
        times = self._changes
        next_change = np.searchsorted(times, start, side="right")
        index, change = expand(next_change, np.maximum(np.searchsorted(times, stop), next_change))
        index = np.concatenate([np.arange(len(start)), index])
        starts = np.concatenate([start, times[change]])
        order = np.lexsort((starts, index))
        index, starts = index[order], starts[order]
        follows = np.append(index[1:] == index[:-1], False) if len(index) else np.zeros(0, bool)
        return index, starts, np.where(follows, np.append(starts[1:], 0.0)[: len(starts)], stop[index])

    @cached_property
    def _changes(self) -> Floats:
        """Times at which a reason may change: what is unfinished or queued, and which workers are crowded."""
        steps = [
            StepFunction(s.time, (s.value > 0).astype(np.int64))
            for s in (self.repeat.unfinished, self.repeat.queued)
        ]
        steps += [
            StepFunction(load.time, (load.value > self._threads(worker)).astype(np.int64))
            for worker, load in self.repeat.load.items()
        ]
        changed = [step.time[np.diff(step.value, prepend=0) != 0] for step in steps]
        return np.unique(np.concatenate([*changed, self.client.changes]))

    def _threads(self, worker: int) -> int:
        return self.repeat.threads[self.repeat.places.nodes[worker]]

    def _most_crowded(self, worker: Codes, time: Floats) -> Codes:
        """Return the other worker with most tasks beyond its threads; ``NONE`` if there is none."""
        most, place = np.zeros(len(time), np.int64), np.full(len(time), NONE)
        for other, load in self.repeat.load.items():
            excess = load.at(time) - self._threads(other)
            more = (excess > most) & (worker != other)
            most, place = np.where(more, excess, most), np.where(more, other, place)
        return place
