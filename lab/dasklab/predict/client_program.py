"""The client's program, from a record: what it sent, what it waited for, what it did besides.

A record holds each task (key, seconds, size of the result, what it needs), which graph introduced it, when
the client built and sent each graph, the calls in which it waited or moved data, and when the scheduler
reported each result to it. It does not hold the program. This is what is taken from it, and how:

tasks       Each takes the seconds and leaves the bytes that it had in the record. A key that the client sent
            again takes its next ones. Attempts that failed, results that were lost and computed again, and
            tasks that did not end are left out, and counted.
graphs      Each is sent with its tasks, after the client has taken the recorded time to build it; the
            scheduler prepares it as long as recorded. Priorities, restrictions to workers and resources are
            not recorded: the graphs are sent without.
waits       A call that waited ends when the client has as many results of each graph as it had when the call
            returned. Dask's ``as_completed`` is no such call. Where a line of the program waited in another
            way, what follows it waits for as many results as there were, of whatever graph.
gathers     A call that moved results moves as many as the scheduler counted, those that came last. Which
            they were is not recorded.
scatters    Data that tasks need and that no task computed is scattered in the last call of ``scatter`` before
            its first use, or was on the workers before if there is none.
releases    When the client let go of a result is not recorded. What it gathered and no later graph needs is
            released at once, what it sent again right before that, all else never.
pauses      All other time of the client is its own code, which takes as long as recorded.

Of a client that was not recorded (``dasklab record``), only the scheduler's side is known: a graph that
arrived after all results so far is sent after them, all other time between graphs is a pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import Floats
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.columns import complete_graphs
from dasklab.records import Frames
from dasklab.sim.program import ClientStep, Program, Record, SentGraph

CLOCK_S = 0.002  # the client's clock may be off by this
SAMPLING_S = 0.05  # between two looks at the lines of the user's program
BEFORE = 0  # number of the graph of tasks that were there before the recording


@dataclass(frozen=True)
class LeftOut:
    """What a program does not repeat: failed attempts, computations of lost results, tasks without an end."""

    failed: int
    computed_again: int
    unfinished: int


@dataclass(frozen=True)
class ClientProgram:
    """A program with the measured seconds of its tasks as seconds of waiting, and what it leaves out."""

    program: Program
    left_out: LeftOut


@dataclass(frozen=True)
class _Action:
    """Something that the client did, from ``start`` to ``stop``; ``rank`` orders what began together."""

    start: float
    stop: float
    rank: int
    kind: str
    value: int = 0


def client_program(repeat: Repeat, tables: Frames, is_recorded: bool) -> ClientProgram:
    """Return the program of the client of a record.

    Args:
        repeat: the recorded block.
        tables: of the record, on the clock of ``repeat``.
        is_recorded: whether the client itself was recorded.
    """
    return _Reader(repeat, tables, is_recorded).read()


class _Reader:
    """Reads the program of one record. Positions are those of ``keys``; graphs are in order of sending."""

    def __init__(self, repeat: Repeat, tables: Frames, is_recorded: bool) -> None:
        self.repeat, self.tables, self.is_recorded = repeat, tables, is_recorded
        self.rows, self.left_out = _computations(tables, repeat)
        graphs = complete_graphs(tables["graphs"])
        numbers = set(self.rows.graph) | set(graphs.graph)
        self.graphs = (
            graphs.set_index("graph").reindex(sorted(numbers)).sort_values("begin_s", na_position="first")
        )
        computed = list(dict.fromkeys(self.rows.key))
        needs = tables["needs"].drop_duplicates(["key", "needed"])
        needs = needs[needs.key.isin(computed)]
        self.data_bytes = needs[~needs.needed.isin(computed)].groupby("needed", sort=True).nbytes.max()
        self.keys = [*computed, *self.data_bytes.index]
        self._sent: set[int] = set()  # keys whose results the client has requested so far
        self.position = {key: position for position, key in enumerate(self.keys)}
        self.needs: list[list[int]] = [[] for _ in self.keys]
        for key, needed in zip(needs.key, needs.needed, strict=True):
            self.needs[self.position[key]].append(self.position[needed])

    def read(self) -> ClientProgram:
        works: list[list[Record]] = [[] for _ in self.keys]
        for key, seconds, nbytes in zip(
            self.rows.key, self.rows.stop_s - self.rows.start_s, self.rows.nbytes.fillna(0), strict=True
        ):
            works[self.position[key]].append((0.0, max(0.0, float(seconds)), int(nbytes)))
        for key, nbytes in self.data_bytes.items():
            works[self.position[key]].append((0.0, 0.0, 0 if nbytes != nbytes else int(nbytes)))
        steps = list(_with_whole_pauses(self._steps()))
        scattered = {key for step in steps if step.does == "scatter" for key in step.keys}
        data = range(len(self.keys) - len(self.data_bytes), len(self.keys))
        program = Program(
            keys=tuple(self.keys),
            needs=tuple(map(tuple, self.needs)),
            works=tuple(map(tuple, works)),
            prepared=tuple(key for key in data if key not in scattered),
            graphs=tuple(self._graph(number) for number in range(len(self.graphs))),
            steps=tuple(steps),
        )
        return ClientProgram(program, self.left_out)

    # --- graphs ---------------------------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> list[list[int]]:
        """For each graph the keys that it asks to compute."""
        number = {graph: position for position, graph in enumerate(self.graphs.index)}
        tasks: list[list[int]] = [[] for _ in number]
        for key, graph in zip(self.rows.key, self.rows.graph, strict=True):
            tasks[number[graph]].append(self.position[key])
        return tasks

    @cached_property
    def reported(self) -> list[dict[int, float]]:
        """For each graph its wanted keys, and when the client knew of their results; NaN for never."""
        results = self.tables["results"]
        if results.empty:  # the scheduler's messages were not recorded
            results = self.rows.rename(columns={"handled_s": "time_s"})[["key", "time_s"]]
            results = results[~results.key.isin(self.tables["needs"].needed)]
        times: dict[str, list[float]] = {}
        for key, time in sorted(zip(results.key, results.time_s, strict=True), key=lambda row: row[1]):
            times.setdefault(key, []).append(float(time))
        reported = []
        for tasks, received in zip(self.tasks, self.graphs.received_s, strict=True):
            since = -np.inf if received != received else float(received) - CLOCK_S
            inner = {need for task in tasks for need in self.needs[task]}
            reported.append(
                {
                    task: next((time for time in times.get(self.keys[task], ()) if time >= since), np.nan)
                    for task in tasks
                    if self.keys[task] in times or task not in inner
                }
            )
        return reported

    def _graph(self, number: int) -> SentGraph:
        row = self.graphs.iloc[number]
        seconds = row[["materialise_s", "order_s", "state_s"]].astype(float).fillna(0.0)
        return SentGraph(
            tasks=tuple(self.tasks[number]),
            wanted_keys=tuple(self.reported[number]),
            thread_s=float(seconds.materialise_s + seconds.order_s),
            loop_s=float(seconds.state_s),
        )

    @cached_property
    def last_use(self) -> dict[int, int]:
        """For each key that another needs the last graph with such a task."""
        return {
            need: graph
            for graph, tasks in enumerate(self.tasks)
            for task in tasks
            for need in self.needs[task]
        }

    # --- steps ----------------------------------------------------------------------------------------------

    def _steps(self) -> Iterator[ClientStep]:
        """Yield what the client did, in order, with pauses between."""
        clock, waiter = self.repeat.start, _Waiter(self)
        actions = sorted(self._actions(), key=lambda action: (action.start, action.rank))
        for action in actions:
            yield from self._between(clock, action.start)
            yield from self._steps_of(action, waiter, action.stop - max(clock, action.start))
            clock = max(clock, action.stop)
        yield from self._between(clock, self.repeat.stop)

    def _between(self, start: float, stop: float) -> Iterator[ClientStep]:
        """Yield what the client did between two actions: its own code, after a wait if a line waited."""
        low, high = self._waiting_lines
        if ((low < stop) & (high > start)).any():
            arrived = int(np.searchsorted(self._reports, stop + CLOCK_S, side="right"))
            if arrived:
                yield ClientStep(does="wait", total=arrived)
                start = min(stop, max(start, float(self._reports[arrived - 1])))
        yield from _pause(stop - start)

    @cached_property
    def _reports(self) -> Floats:
        """When the client was informed of results, sorted."""
        return np.sort([time for graph in self.reported for time in graph.values() if time == time])

    @cached_property
    def _waiting_lines(self) -> tuple[Floats, Floats]:
        """When lines waited without a recorded call, or may have: they are looked at now and then."""
        calls, lines = self.repeat.calls, self.repeat.lines
        if not self.is_recorded:
            return np.zeros(0), np.zeros(0)
        recorded = [*zip(*calls.of_kind("sync", "scatter"), strict=True)]

        def recorded_s(start: float, stop: float) -> float:
            return float(sum(max(0.0, min(stop, end) - max(start, begin)) for begin, end in recorded))

        waiting_rows = zip(lines.start[lines.waits], lines.stop[lines.waits], strict=True)
        waits = [
            (start - 2 * SAMPLING_S, stop + 2 * SAMPLING_S)
            for start, stop in waiting_rows
            if recorded_s(start, stop) <= (stop - start) / 2  # its ends are not exact: it may overlap a call
        ]
        return np.array([start for start, _ in waits]), np.array([stop for _, stop in waits])

    def _steps_of(self, action: _Action, waiter: _Waiter, seconds: float) -> Iterator[ClientStep]:
        if action.kind == "send":
            yield from _pause(seconds)
            if self.tasks[action.value]:  # else it requested nothing that was not known
                waiter.send(action.value)
                yield from _release(key for key in self.tasks[action.value] if key in self._sent)
                self._sent |= set(self.reported[action.value])
                yield ClientStep(does="send", graph=action.value)
        elif action.kind == "scatter":
            keys = tuple(self.scatters[action.value])
            yield from [ClientStep(does="scatter", keys=keys)] if keys else _pause(seconds)
        else:
            yield from waiter.steps(action)

    def _actions(self) -> Iterator[_Action]:
        start = self.repeat.start
        for number, (begin, sent_s) in enumerate(zip(self.graphs.begin_s, self.graphs.sent_s, strict=True)):
            has_times = begin == begin
            yield _Action(
                float(begin) if has_times else start, float(sent_s) if has_times else start, 2, "send", number
            )
        for number, (begin, end, _) in enumerate(self.scatter_calls):
            yield _Action(begin, end, 1, "scatter", number)
        yield from self._waits() if self.is_recorded else self._presumed_waits()

    def _waits(self) -> Iterator[_Action]:
        """Yield the calls in which the client waited."""
        calls = self.repeat.calls
        spans = [*zip(*(times.tolist() for times in calls.of_kind("sync")), strict=True)]
        gathers = np.sort(calls.of_kind("wait")[0])
        scatters = [begin for begin, _, _ in self.scatter_calls]
        for begin, end in spans:
            if not any(begin <= scatter <= end for scatter in scatters):
                moved = int(np.searchsorted(gathers, end) - np.searchsorted(gathers, begin))
                yield _Action(begin, end, 0, "gather" if moved else "wait")

    def _presumed_waits(self) -> Iterator[_Action]:
        """Yield a wait before each graph that arrived when all results so far were there, and at the end."""
        begins = np.sort(self.graphs.begin_s.dropna().to_numpy(float))
        for begin in [*begins.tolist(), self.repeat.stop]:
            earlier = [
                time
                for graph, own in zip(self.reported, self.graphs.begin_s, strict=True)
                if not own >= begin
                for time in graph.values()
            ]
            times = [time for time in earlier if time == time]
            if times and max(times) <= begin + CLOCK_S:
                yield _Action(min(max(times), begin), min(max(times), begin), 0, "wait")

    @cached_property
    def scatter_calls(self) -> list[tuple[float, float, int]]:
        """Start and stop of each call, and how many keys it made."""
        calls = self.tables["calls"]
        calls = calls[(calls.kind == "scatter") & (calls.start_s < self.repeat.stop)].sort_values("start_s")
        return [*calls[["start_s", "stop_s", "keys"]].itertuples(index=False, name=None)]

    @cached_property
    def scatters(self) -> list[list[int]]:
        """For each call of ``scatter`` the data that it brought: that of which the first use came next."""
        scattered: list[list[int]] = [[] for _ in self.scatter_calls]
        stops = [stop for _, stop, _ in self.scatter_calls]
        first_use: dict[int, float] = {}
        for tasks, sent_s in zip(self.tasks, self.graphs.sent_s, strict=True):
            for task in tasks:
                for need in self.needs[task]:
                    if need >= len(self.keys) - len(self.data_bytes):
                        first_use[need] = min(
                            first_use.get(need, np.inf), -np.inf if sent_s != sent_s else sent_s
                        )
        for key, time in sorted(first_use.items(), key=lambda use: use[1]):
            call = int(np.searchsorted(stops, time + CLOCK_S, side="right")) - 1
            if call >= 0 and len(scattered[call]) < self.scatter_calls[call][2]:
                scattered[call].append(key)
        return scattered


class _Waiter:
    """Turns the client's waits into steps: which results it had when each of them ended."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.last = -1  # graph that was sent
        self.open: list[int] = []  # graphs of which not all results were there so far
        self.known: dict[int, int] = {}  # results of each graph that an earlier wait requires already
        self.results: dict[
            tuple[int, int], float
        ] = {}  # graph and key of what was not gathered: when it came
        events = reader.tables["events"]
        events = events[events.kind == "gather"]
        self.gather_times = events.time_s.to_numpy(float)
        self.gather_counts = events.detail.str.extract(r'"count": (\d+)', expand=False).astype(float)

    def steps(self, action: _Action) -> Iterator[ClientStep]:
        """Yield the steps of one wait."""
        stop = action.stop + CLOCK_S
        new: dict[int, int] = {}
        for graph in self.open:
            times = self.reader.reported[graph]
            count = sum(time <= stop for time in times.values())
            if count > self.known.get(graph, 0):
                new[graph] = count
        self.open = [graph for graph in self.open if new.get(graph) != len(self.reader.reported[graph])]
        self.known |= new
        if new:
            yield ClientStep(does="wait", results=tuple(new.items()))
        keys = self._gathered(action) if action.kind == "gather" else []
        if keys:
            yield ClientStep(does="gather", keys=tuple(keys))
            last_use = self.reader.last_use
            yield from _release(key for key in keys if last_use.get(key, -1) <= self.last)
        if not new and not keys:  # it waited for something else
            yield ClientStep(does="pause", seconds=action.stop - action.start)

    def send(self, graph: int) -> None:
        """Take note of a graph that is sent."""
        self.last = graph
        self.open.append(graph)
        self.results |= {
            (graph, key): time for key, time in self.reader.reported[graph].items() if time == time
        }

    def _gathered(self, action: _Action) -> list[int]:
        """Return the results that a call moved: so many of those that came last and were not moved before."""
        during = (self.gather_times >= action.start - CLOCK_S) & (self.gather_times <= action.stop + CLOCK_S)
        stop = action.stop + CLOCK_S
        arrivals = sorted((time, *result) for result, time in self.results.items() if time <= stop)
        open_results = [(graph, key) for _, graph, key in arrivals]
        count = int(self.gather_counts[during].sum())
        if not count and open_results:  # workers sent them to the client directly: nobody counted
            last = open_results[-1][0]
            open_results = [(graph, key) for graph, key in open_results if graph == last]
            count = len(open_results)
        moved = open_results[len(open_results) - min(count, len(open_results)) :]
        for result in moved:
            del self.results[result]
        return [key for _, key in moved]


def _with_whole_pauses(steps: Iterable[ClientStep]) -> Iterator[ClientStep]:
    """Put pauses that follow each other together."""
    seconds = 0.0
    for step in steps:
        if step.does == "pause":
            seconds += step.seconds
            continue
        yield from _pause(seconds)
        seconds = 0.0
        yield step
    yield from _pause(seconds)


def _release(keys: Iterable[int]) -> Iterator[ClientStep]:
    if released := tuple(keys):
        yield ClientStep(does="release", keys=released)


def _pause(seconds: float) -> Iterator[ClientStep]:
    if seconds > 0:
        yield ClientStep(does="pause", seconds=seconds)


def _computations(tables: Frames, repeat: Repeat) -> tuple[pd.DataFrame, LeftOut]:
    """Return the rows of ``tasks`` that a program repeats, by start, with the graph that each is of."""
    tasks, graphs = tables["tasks"], tables["graphs"].sort_values("received_s")
    computations = tasks[(tasks.status == "OK") & tasks.start_s.notna() & tasks.stop_s.notna()]
    computations = computations[(computations.start_s < repeat.stop) & (computations.stop_s > repeat.start)]
    computations = computations.sort_values("start_s", kind="stable")
    introduced = tables["introduced"].drop_duplicates("key").set_index("key").graph
    first = computations.key.map(introduced).astype(float).fillna(BEFORE)
    arrivals = graphs.received_s.to_numpy(float)
    position = (
        np.searchsorted(arrivals, computations.waiting_s.fillna(-np.inf).to_numpy(float), side="right") - 1
    )
    latest = np.append(graphs.graph.to_numpy(float), BEFORE)[position]
    arrived = np.append(arrivals, -np.inf)[position]
    is_first = ~computations.key.duplicated()
    before = computations.groupby("key").handled_s.shift().to_numpy(float)
    sent_again = ~is_first & (arrived > before)
    rows = computations.assign(graph=np.where(is_first, first, latest).astype(int))
    program_rows = rows[is_first | sent_again]
    never = set(tasks.key) - set(computations.key)
    left_out = LeftOut(
        failed=int((tasks.status == "error").sum()),
        computed_again=len(rows) - len(program_rows),
        unfinished=len(never),
    )
    return program_rows, left_out
