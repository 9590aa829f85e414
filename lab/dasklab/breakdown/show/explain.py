"""The time breakdown of a trial, from its files: records, clocks, known delays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import permutations

import numpy as np
import pandas as pd

from dasklab import records
from dasklab.breakdown.answers.advice import advise
from dasklab.breakdown.answers.advice.rules import Advice, Measurements
from dasklab.breakdown.answers.bandwidth import BandwidthEstimate, bandwidth_estimates
from dasklab.breakdown.answers.facts.facts import Facts, facts
from dasklab.breakdown.answers.summary import Summary, summarise
from dasklab.breakdown.model.arrays import floats
from dasklab.breakdown.model.repeat import CLIENT, SCHEDULER, Extent, Repeat
from dasklab.breakdown.prepare.clocks import Clock
from dasklab.breakdown.prepare.columns import complete_graphs
from dasklab.breakdown.prepare.common_clock import (
    Delay,
    Delays,
    Frames,
    build_repeats,
    clocks_by_messages,
    clocks_by_packets,
    to_common_clock,
)
from dasklab.breakdown.prepare.excerpt import excerpt
from dasklab.breakdown.prepare.operations import Operation, operations, total
from dasklab.breakdown.prepare.packets import with_packets
from dasklab.breakdown.show.gaps import gaps
from dasklab.errors import LabError
from dasklab.model.experiments.cells import cell_names
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Measured
from dasklab.model.settings.impairments import sides
from dasklab.model.settings.variants import Layout
from dasklab.notices import warn
from dasklab.records.document import Record
from dasklab.records.recorder.process import WAITING_FOR_CPU
from dasklab.results.recording import Recording
from dasklab.results.run import Run, Trial

VISIT_S = 1.0  # between two visits of earlier recorders


@dataclass(frozen=True)
class Explained:
    """A trial whose repeats are on one clock.

    Attributes:
        captured: whether these are the captured repeats, not the timed ones.
        cpu_wait_s: how long each process waited for a CPU, the mean of the timed repeats.
        recorded_bandwidths: the table ``bandwidths``.
        operations: the computations of a record of a cluster; none of a trial, which has repeats.
        facts: what the record knows beside times.
        document: what the record says of itself; None of a trial.
    """

    trial: Trial
    captured: bool
    clocks: dict[str, Clock]
    repeats: list[Repeat]
    cpu_wait_s: dict[str, float]
    recorded_bandwidths: pd.DataFrame
    operations: Sequence[Operation] = ()
    facts: Facts = field(default_factory=Facts)
    document: Record | None = None

    @cached_property
    def timed(self) -> list[Repeat]:
        """The repeats that count: without warm-ups."""
        return [repeat for repeat in self.repeats if not repeat.warmup]

    @property
    def gap(self) -> str:
        """Say what a record lacks; empty for a whole one and for a trial."""
        if self.document is None:
            return ""
        return " ".join(filter(None, [gap(self.document), *gaps(self.document, self.repeats[0])]))

    @property
    def median_repeat(self) -> Repeat:
        """The timed repeat of middle length."""
        return sorted(self.timed, key=lambda repeat: repeat.makespan)[len(self.timed) // 2]

    @cached_property
    def bandwidths(self) -> list[BandwidthEstimate]:
        """Dask's estimate of each pair's bandwidth, beside what the link gave."""
        measured = self.trial.measured or Measured()
        return bandwidth_estimates(self.recorded_bandwidths, self.timed, measured.throughput)

    @cached_property
    def summary(self) -> Summary:
        """The time breakdown of the timed repeats."""
        with records.reading(self.trial):
            return summarise(self.timed)

    @cached_property
    def advice(self) -> Sequence[Advice]:
        """What is worth doing, at most three pieces."""
        with records.reading(self.trial):
            return advise(Measurements(self.median_repeat, self.summary, self.facts)) if self.timed else ()

    def only(self, number: int) -> Explained:
        """Return the record with one of its operations alone.

        Raises:
            LabError: it has no such operation.
        """
        for operation in self.operations:
            if operation.number == number:
                repeat = excerpt(self.repeats[0], operation.start, operation.stop)
                return replace(self, repeats=[repeat], operations=[operation])
        raise LabError(f"{self.trial} has no operation {number}; it has {len(self.operations)}")

    def summary_of(self, operation: Operation) -> Summary:
        """The time breakdown of one operation of a record."""
        return summarise([excerpt(self.repeats[0], operation.start, operation.stop)])


def gap(record: Record) -> str:
    """Say that a record is cut off, or may be; empty for a whole one."""
    if record.complete:
        return ""
    if record.complete is None:
        return "It is unknown whether this record is complete: an earlier version of dasklab wrote it."
    end = "reached its size limit" if record.beyond_limit else "was cut off"
    if record.complete_until is None:
        return f"The recording {end}. What follows is only the part that was kept."
    moment = datetime.fromtimestamp(record.complete_until).astimezone().isoformat(" ", "seconds")
    seconds = max(0.0, record.complete_until - record.start)
    return f"The recording {end} at {moment}, after {seconds:.1f} s. What follows is only that part."


def explain(trial: Trial, captured: bool = False) -> Explained:
    """Break down the time of a trial's repeats.

    Args:
        captured: explain the captured repeats, with packets, instead of the timed ones.

    Raises:
        LabError: nothing was recorded, or a file of the trial is damaged.
    """
    with records.reading(trial):
        if trial.is_record:
            return explain_record(trial, *records.load_record(trial))
        return _explain_trial(trial, captured)


def _explain_trial(trial: Trial, captured: bool) -> Explained:
    trial.require_whole()
    frames = records.tables_of(trial, captured)
    delays = _delays(trial.requested) if trial.has(RequestedTrial) else {}
    if not captured:
        clocks = clocks_by_messages(frames, delays)
        return _explained(trial, frames, clocks, build_repeats(to_common_clock(frames, clocks)))
    capture = trial.capture
    if capture is None or not capture.rows("tasks"):
        raise LabError(f"{trial}: its capture shows no tasks")
    clocks = clocks_by_packets(frames, capture.rows("tasks"), delays)
    repeats = [
        with_packets(repeat, _transfers(capture)) for repeat in build_repeats(to_common_clock(frames, clocks))
    ]
    return replace(_explained(trial, frames, clocks, repeats), captured=True)


def explain_record(record: Trial, document: Record, frames: Frames) -> Explained:
    """Break down the time of a record, from what ``records.load_record`` returns of it.

    Raises:
        LabError: it shows no worker, or none of its tasks had ended.
    """
    clocks = clocks_by_messages(frames)
    aligned = to_common_clock(frames, clocks)
    (repeat,) = build_repeats(aligned)
    if not repeat.threads:
        raise LabError(f"{record}: it shows no worker", "nothing can be explained; record the work again")
    is_whole_block = document.complete and not document.watches
    has_ended = len(repeat.tasks.key) > 0 or not aligned["actor_calls"].empty
    if repeat.graphs and not has_ended and not is_whole_block:
        raise LabError(f"{record}: none of its tasks had ended when the recording did", "record for longer")
    computations = operations(repeat, complete_graphs(aligned["graphs"]), aligned["introduced"])
    extent = Extent.WATCHED if _watches(document, repeat) else Extent.BLOCK
    ends = None if extent is Extent.WATCHED else _block(document, repeat, aligned, clocks)
    ends = ends or total(computations, aligned["actor_calls"], repeat)
    if not document.complete and not aligned["metrics"].metric.str.startswith("execute/").any():
        unknown = np.full(len(repeat.tasks), np.nan)
        shares = replace(repeat.evidence.shares, idle=unknown)
        repeat = replace(repeat, evidence=replace(repeat.evidence, shares=shares))
    client = "" if extent is Extent.WATCHED else document.client
    whole = replace(excerpt(repeat, *ends), extent=extent, client=client)
    explained = _explained(record, frames, clocks, [whole])
    return replace(explained, operations=computations, document=document)


def _watches(document: Record, repeat: Repeat) -> bool:
    """Return whether a record is of other programs; of earlier records by who sent the graphs."""
    if document.watches is None:
        return bool(repeat.graphs) and not any(graph.is_recorded for graph in repeat.graphs)
    return document.watches


def _block(
    document: Record, repeat: Repeat, aligned: Frames, clocks: Mapping[str, Clock]
) -> tuple[float, float] | None:
    """Return when the user's block began and ended, as far as it is recorded; None if that is unknown.

    The ends of an earlier record include the recorder's own time. There the client's event loop was watched
    as the last step before the block, and two visits that follow each other at once came after it; others
    were VISIT_S apart.
    """
    start, stop = repeat.start, repeat.stop
    to_reference = clocks[CLIENT].to_reference
    if document.watches is None:
        watched = floats(aligned["busy"].start_s[aligned["busy"].node == CLIENT])
        visits = to_reference(floats(aligned["clock"].asked_s))
        start = max(start, float(watched.min()) if len(watched) else start)
        stop = min(stop, float(visits[-2])) if len(visits) > 1 and visits[-1] - visits[-2] < VISIT_S else stop
    if document.complete is False:
        if document.complete_until is None:
            return None
        stop = min(stop, float(to_reference(np.array([document.complete_until]))[0]))
    return (start, stop) if stop > start else None


def _explained(trial: Trial, frames: Frames, clocks: dict[str, Clock], repeats: list[Repeat]) -> Explained:
    explained = Explained(trial, False, clocks, repeats, _cpu_wait(frames), frames["bandwidths"])
    repeat = explained.median_repeat if explained.timed else repeats[0]
    return replace(explained, facts=facts(frames, repeat.number))


def _cpu_wait(frames: Frames) -> dict[str, float]:
    metrics, repeats = frames["metrics"], frames["repeats"]
    of_cpu = metrics.metric == WAITING_FOR_CPU
    timed = metrics[of_cpu & metrics.repeat.isin(repeats[~repeats.warmup.astype(bool)].repeat)]
    return {str(node): float(rows.value.mean()) for node, rows in timed.groupby("node")}


def _transfers(capture: Recording) -> pd.DataFrame:
    """Return when the request, the first and the last byte of the data of each transfer were on the wire."""
    rows = [
        (
            row["source"],
            row["destination"],
            row["request_ns"] / 1e9,
            row["serve_ms"] / 1e3,
            row["wire_ms"] / 1e3,
        )
        for row in capture.rows("transfers")
        if row["kind"] == "get_data" and row["serve_ms"] is not None and row["wire_ms"] is not None
    ]
    table = pd.DataFrame(rows, columns=["sender", "receiver", "request", "serve", "wire"])
    table["first_byte"] = table.request + table.serve
    table["last_byte"] = table["first_byte"] + table.wire
    return table


def explain_trials(
    run: Run, captured: bool = False, *, valid_only: bool = False
) -> Iterator[tuple[Trial, Explained]]:
    """Yield the time breakdown of each finished trial of which Dask's records exist."""
    for trial in run.trials:
        if (trial.is_valid or not valid_only) and records.recorded(trial, captured):
            try:
                yield trial, explain(trial, captured)
            except LabError as error:
                warn(f"{error.message}; the trial's time is not explained")


def cells(run: Run, captured: bool = False) -> dict[str, Summary]:
    """Return the time breakdown of each cell of an experiment's run, the baseline first: of its valid trials.

    Empty where nothing was recorded of the baseline.
    """
    return summarise_cells(run, explain_trials(run, captured, valid_only=True))


def summarise_cells(run: Run, trials: Iterable[tuple[Trial, Explained]]) -> dict[str, Summary]:
    """Return the same as ``cells`` from trials that are explained already."""
    timed: dict[str, list[Repeat]] = {}
    for trial, explained in trials:
        if trial.is_valid:
            timed.setdefault(trial.requested.cell_title, []).extend(explained.timed)
    base = cell_names(run.experiment)[0]
    order = [base, *(name for name in timed if name != base)] if base in timed else []
    return {name: summarise(timed[name]) for name in order}


def _delays(trial: RequestedTrial) -> Delays:
    """Return the least delays that the trial requested from one host to another."""
    hosts = [CLIENT, SCHEDULER, *(f"worker-{i + 1}" for i in range(trial.workers))]
    processes = Layout.parse(trial.layout).processes if trial.layout else 1
    several = range(1, processes + 1) if processes > 1 else ()
    host_of = {name: host for host in hosts for name in (host, *(f"{host}-{number}" for number in several))}
    return {
        (source, target): Delay(
            _delay_ms(trial, sender, receiver, "egress") / 1e3,
            _delay_ms(trial, receiver, sender, "ingress") / 1e3,
        )
        for (source, sender), (target, receiver) in permutations(host_of.items(), 2)
        if sender != receiver
    }


def _delay_ms(trial: RequestedTrial, host: str, peer: str, direction: str) -> float:
    link = trial.links.get(host)
    if link is None or direction not in sides(link.direction) or link.peer not in (None, peer):
        return 0.0
    return max(0.0, link.delay_ms - link.jitter_ms)
