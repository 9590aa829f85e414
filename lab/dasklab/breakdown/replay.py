"""A run once more, without its waits for the wire: what is the most that a faster network could bring? Pure.

A list schedule: each task on the worker that it had, after the tasks that it came after, on whichever of the
worker's threads is free first, for as long as it took. What lay between is kept, all but the wire's share:
choices, messages, timers, event loops, (de)serialising, busy peers; a fetch begins when the first task that
needs its data is there. Dask might have decided otherwise had data come sooner, so this is no forecast; how
far the same replay misses the run as it was says how good the model is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from dasklab.breakdown.causes import MESSAGE, WIRE, Part
from dasklab.breakdown.run import Fetch, Run, Task
from dasklab.breakdown.timeline import Found, Way, clipped, fetching, report, way


@dataclass(frozen=True)
class Replay:
    """Seconds that a run takes in the model: as it was, and with a network that takes no time."""

    as_it_was_s: float
    without_wire_s: float


def replay(run: Run) -> Replay:
    """Both replays of a run. Another order of tasks may make the second one longer: then it shows nothing."""
    ways = {task.key: way(run, task) for task in run.by_key.values()}
    as_it_was = _World(run, ways, lifted=False).makespan()
    return Replay(as_it_was, min(as_it_was, _World(run, ways, lifted=True).makespan()))


def mean(replays: Sequence[Replay]) -> Replay | None:
    """The mean of several runs; None without any."""
    if not replays:
        return None
    as_they_were, without_wire = zip(*((r.as_it_was_s, r.without_wire_s) for r in replays), strict=True)
    return Replay(sum(as_they_were) / len(replays), sum(without_wire) / len(replays))


@dataclass
class _Step:
    """A task with its latencies, and what it waits for; a replay's times are seconds from the run's start."""

    task: Task
    first: float  # it was chosen when nothing of this run had to end before: at this time
    choice: float  # from the last end that it came after to the choice of its worker
    message: float  # from the choice until it is there
    lag: float  # from when thread and data were there to its start, and what the worker did in between
    report: float  # from its end until the scheduler has dealt with it
    after: set[str] = field(default_factory=set)  # keys of tasks that have to be handled before


class _World:
    """The state of one replay: events in their order, free threads and ready tasks of each worker."""

    def __init__(self, run: Run, ways: Mapping[str, Found], lifted: bool) -> None:
        self.run, self.lifted = run, lifted
        self.steps = {task.key: self._step(task, ways[task.key]) for task in run.by_key.values()}
        self.followers: defaultdict[str, list[_Step]] = defaultdict(list)
        for step in self.steps.values():
            for key in step.after:
                self.followers[key].append(step)
        self.free = dict(run.threads)
        self.ready: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        self.held: dict[tuple[str, str], float] = {}  # when a worker has, or will have, a key's data
        self.events: list[tuple[float, str, str]] = []
        self.end = 0.0

    def makespan(self) -> float:
        """Seconds until the client has the result."""
        for step in self.steps.values():
            if not step.after:
                self._event(step.first + step.message, "arrive", step.task.key)
        while self.events:
            now, what, key = heappop(self.events)
            getattr(self, f"_{what}")(now, self.steps[key])
        last = max((_handled(task) for task in self.run.by_key.values()), default=self.run.start)
        return self.end + max(0.0, self.run.stop - last)

    def _event(self, time: float, what: str, key: str) -> None:
        heappush(self.events, (time, what, key))

    def _arrive(self, now: float, step: _Step) -> None:
        """The worker knows of it: data that is not there is asked for."""
        task = step.task
        there = [now]
        for need in task.needs:
            if fetch := self._fetch_of(task, need.key):
                asked = self.held.setdefault((task.worker, need.key), now + self._takes(task, fetch))
                there.append(asked)
        self._event(max(there), "wait", task.key)

    def _wait(self, now: float, step: _Step) -> None:
        heappush(self.ready[step.task.worker], (step.task.start, step.task.key))
        self._start(now, step.task.worker)

    def _start(self, now: float, worker: str) -> None:
        """Of what is ready a free thread takes what it took first."""
        while self.ready[worker] and self.free.get(worker, 0) > 0:
            _, key = heappop(self.ready[worker])
            self.free[worker] -= 1
            step = self.steps[key]
            self._event(now + step.lag + step.task.stop - step.task.start, "stop", key)

    def _stop(self, now: float, step: _Step) -> None:
        self.free[step.task.worker] += 1
        self._start(now, step.task.worker)
        self._event(now + step.report, "handle", step.task.key)

    def _handle(self, now: float, step: _Step) -> None:
        """The scheduler has dealt with its end, and chooses what comes after it."""
        self.end = max(self.end, now)
        for follower in self.followers[step.task.key]:
            follower.after.discard(step.task.key)
            if not follower.after:
                self._event(now + follower.choice + follower.message, "arrive", follower.task.key)

    def _step(self, task: Task, found: Found) -> _Step:
        run = self.run
        parts, _, trigger = found
        decided, arrived, ready = _stamps(task)
        before = [run.by_key[need.key] for need in task.needs if need.key in run.by_key]
        before += [trigger] if trigger else []
        # what was recorded to come later cannot have been waited for: clocks err
        known = [other for other in before if other.start < task.start and other is not task]
        latest = max((_handled(other) for other in known), default=decided)
        busy = run.before_on_thread.get(task.key)
        free = max(ready, busy.stop) if busy else ready
        fetches = [fetch.stop for need in task.needs if (fetch := self._fetch_of(task, need.key))]
        there = max(arrived, min(ready, max(fetches, default=arrived)))
        reporting = Way(_handled(task))
        if self.lifted:
            report(run, task, reporting)
        reported = clipped(reporting.parts, task.stop, _handled(task))  # it may be told to have left before
        return _Step(
            task,
            first=max(0.0, decided - run.start),
            choice=max(0.0, decided - latest),
            message=arrived - decided - self._on_wire(_within(parts, decided, arrived), MESSAGE),
            lag=ready - there + max(0.0, task.start - free),
            report=_handled(task) - task.stop - self._on_wire(reported, MESSAGE),
            after={other.key for other in known},
        )

    def _fetch_of(self, task: Task, key: str) -> Fetch | None:
        """The fetch that brought a key to a task's worker in time for it."""
        found = [f for f in self.run.fetches_by_key.get((task.worker, key), ()) if not f.busy]
        return max((f for f in found if f.start < task.start), key=lambda f: f.stop, default=None)

    def _takes(self, task: Task, fetch: Fetch) -> float:
        """From when data is first needed until it is there."""
        if not self.lifted:
            return max(0.0, fetch.stop - min(fetch.start, _stamps(task)[1]))
        parts = list(fetching(self.run, fetch, task.key, fetch.start, fetch.stop))
        return fetch.stop - fetch.start - self._on_wire(parts, WIRE)

    def _on_wire(self, parts: Iterable[Part], cause: str) -> float:
        return sum(part.seconds for part in parts if part.cause == cause) if self.lifted else 0.0


def _stamps(task: Task) -> tuple[float, float, float]:
    """When it was chosen, was there, and had its data; a stage that was not seen is the one after it."""
    ready = min(task.start if task.ready is None else task.ready, task.start)
    arrived = min(ready if task.arrived is None else task.arrived, ready)
    return min(arrived if task.decided is None else task.decided, arrived), arrived, ready


def _handled(task: Task) -> float:
    return task.stop if task.handled is None else max(task.handled, task.stop)


def _within(parts: Iterable[Part], start: float, stop: float) -> Iterator[Part]:
    return (part for part in parts if start <= part.start and part.stop <= stop)
