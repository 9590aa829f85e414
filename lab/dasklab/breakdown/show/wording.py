"""The sentences and tables of ``dasklab explain``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dasklab.breakdown.answers.bandwidth import BandwidthEstimate
from dasklab.breakdown.answers.graphs import GRAPH_STAGES, GraphTimes, growth, quadratic
from dasklab.breakdown.answers.stage_lengths import stage_lengths
from dasklab.breakdown.answers.summary import ByCause, Summary, hosts
from dasklab.breakdown.model.causes import (
    CAUSES,
    LINK,
    NOT_DIVIDED,
    UNDIVIDED,
    WORKER_LAG,
    Bottleneck,
    Cause,
    Group,
)
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.clocks import Clock
from dasklab.model.forms.number_format import format_fixed, format_number
from dasklab.terminal import counted, data_size, enumerated

LEAST_SHARE = 0.03  # a smaller share of the makespan is left out of sentences
LEAST_SAVED = 0.01  # share of the makespan: what a network saves below that needs no figures
MAX_SENTENCE_PARTS = 4
MAX_NAMED_PLACES = 3
NEARLY_ALL = 0.95  # of the seconds that could not be divided: then one stretch says where they lie
MAX_NAMED_LINES = 3
MOST_CODE = 50  # characters of a line of code in a table
CELL = re.compile(r"In\[(\d+)\]")  # as ``records.user_lines`` names the cell of a notebook
ACTIVITIES = {
    "import": "importing",
    "sizeof": "measuring the size of a result (`__sizeof__`)",
    "spill": "spilling to disk",
    "unpickle": "unpickling",
    "deserialise": "deserialising",
    "pickle": "pickling",
    "serialise": "serialising",
}
"""What sampled stacks show, by the words of the table ``stacks``, as the object of a sentence."""

LEAST_S = 0.0005  # shorter times are not named in a table
LONG_CPU_WAIT = 0.1  # share of the makespan from which on waiting for a CPU is reported
Row = tuple[str, ...]
HEAD: Row = ("cause", "seconds", "share", "critical path", "where")
GRAPH_HEAD: Row = ("stage of a graph", "ms", "µs per task", "moves with the link")
STAGE_HEAD: Row = ("stage of a task, ms", "median", "10 %", "90 %", "moves with the link")
BANDWIDTH_HEAD: Row = ("MB/s to", "from", "Dask plans with", "Dask's table", "Dask's fetches", "iperf3")
MOST_CAUSES = 10
"""Rows of the table of causes where not all are asked for."""
CLOCK_HEAD: Row = ("clock", "ahead, ms", "certainly between", "skew, ppm", "bounds", "")


def paragraph(summary: Summary, workers: str = "") -> str:
    """Describe one time breakdown; ``workers`` says how many were there, if that changed."""
    threads = counted(summary.threads, "thread")
    asides = [f"mean of {summary.repeats} repeats"] if summary.repeats > 1 else []
    aside = f" ({'; '.join([*asides, *filter(None, [workers])])})" if asides or workers else ""
    by_share = sorted(summary.by_cause.items(), key=lambda item: -item[1])
    shares = [
        f"{percent(seconds / summary.makespan_s)} {cause.title}"
        for cause, seconds in by_share[:MAX_SENTENCE_PARTS]
        if seconds > LEAST_SHARE * summary.makespan_s
    ]
    of_threads = f" Thread time: {', '.join(shares)}." if shares else ""
    digits = decimals(summary.makespan_s)
    return (
        f"It took {summary.makespan_s:.{digits}f} s on {threads}{aside}.{of_threads}"
        f"{_path(summary, digits)}{_without_network(summary)}"
    )


def _path(summary: Summary, digits: int) -> str:
    """Name the largest bottlenecks; the first one alone only if it is certain that it is the largest."""
    least_s = LEAST_SHARE * summary.makespan_s
    largest = [row for row in summary.ranked()[:MAX_SENTENCE_PARTS] if row[2] > least_s]
    parts = [
        bottleneck(_with_activity(summary, _with_places(summary, row, digits)), digits)
        + _details(summary, row[0], digits)
        for row in largest
    ]
    equals = sum(row in largest for row in summary.first())
    return f" On the critical path: {', '.join(with_equals(parts, equals))}." if parts else ""


def _with_activity(summary: Summary, row: tuple[Bottleneck, str, float]) -> tuple[Bottleneck, str, float]:
    """Say what worker lag was, if it is known: ``worker lag from unpickling``."""
    name, place, seconds = row
    doing = ACTIVITIES.get(summary.lag_activity, "") if name is WORKER_LAG else ""
    return (replace(name, title=f"{name.title} from {doing}") if doing else name), place, seconds


def _with_places(
    summary: Summary, row: tuple[Bottleneck, str, float], digits: int
) -> tuple[Bottleneck, str, float]:
    """Name one place only if nearly all seconds of a bottleneck are there; else the largest with theirs."""
    name, _, seconds = row
    at_hosts = hosts(summary.bottlenecks, name)
    is_of_pairs = sum(part for _, part in at_hosts) > seconds * (2 - NEARLY_ALL)
    if is_of_pairs or at_hosts[0][1] > NEARLY_ALL * seconds:
        return row
    largest = [(host, part) for host, part in at_hosts[:MAX_NAMED_PLACES] if host and part >= 10**-digits]
    parts = [f"{host} {part:.{digits}f} s" for host, part in largest]
    return name, ", ".join(parts), seconds


def with_equals(parts: Sequence[str], equals: int) -> list[str]:
    """Return the parts of a sentence, with those together of which each may be the largest."""
    if equals < 2:
        return [*parts]
    return [f"{enumerated(parts[:equals])} (too close to tell which is more)", *parts[equals:]]


def _details(summary: Summary, bottleneck: Bottleneck, digits: int) -> str:
    if bottleneck is NOT_DIVIDED:
        return _stretch(summary)
    return _lines(summary, bottleneck, digits)


def _lines(summary: Summary, bottleneck: Bottleneck, digits: int) -> str:
    """Name the lines of the user's program that ran longest."""
    own = [(line, seconds) for (of, line), seconds in summary.client_lines.items() if of is bottleneck]
    longest = sorted(own, key=lambda item: -item[1])
    parts = [
        f"{seconds:.{digits}f} s at {place_in_code(line)}"
        for line, seconds in longest[:MAX_NAMED_LINES]
        if line[0] and seconds > LEAST_SHARE * summary.makespan_s
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _stretch(summary: Summary) -> str:
    """Say where the longest stretch lies that could not be divided."""
    if not summary.undivided:
        return ""
    start, stop = summary.undivided
    between = f"between {start:.1f} s and {stop:.1f} s"
    if summary.repeats == 1 and stop - start > NEARLY_ALL * summary.path_by_cause[UNDIVIDED]:
        return f" ({between})"
    of_a_repeat = " of a repeat" if summary.repeats > 1 else ""
    return f" (at most {stop - start:.1f} s in one piece, {between}{of_a_repeat})"


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def decimals(*makespans_s: float) -> int:
    """Return how many decimals the seconds of some repeats get: two, or three digits if none is 1 s long."""
    longest = max(makespans_s)
    return max(2, 2 - math.floor(math.log10(longest))) if longest > 0 else 2


def _without_network(summary: Summary) -> str:
    """Say what a network that takes no time would save, and how good the model is that says so."""
    if summary.replayed is None or not summary.replayed.transfer_s:
        return ""
    measured, replayed = summary.makespan_s, summary.replayed.as_it_was_s
    without = summary.replayed.without_wire_s
    saved = measured * (1 - without / replayed) if replayed else 0.0
    digits = decimals(measured)
    aside = "" if summary.replayed.has_client else " (the client's link aside, which was not recorded)"
    if saved < LEAST_SAVED * measured:
        return f" The network cost less than {percent(LEAST_SAVED)} of it{aside}."
    return (
        f" With a network that takes no time{aside}: {measured - saved:.{digits}f} s, at most"
        f" {saved:.{digits}f} s less. (Replay on the same workers: {without:.{digits}f} s; with the network"
        f" as it was {replayed:.{digits}f} s, {100 * (replayed / measured - 1):+.1f} % from the measured"
        " time.)"
    )


def bottleneck(row: tuple[Bottleneck, str, float], digits: int, sign: str = "") -> str:
    """Return ``5.71 s the wire (worker-1)``."""
    bottleneck, place, seconds = row
    unsaid = (bottleneck.name,) if bottleneck is LINK else (bottleneck.name, "client", "scheduler")
    where = f" ({place})" if place and place not in unsaid else ""
    return f"{seconds:{sign}.{digits}f} s {bottleneck.title}{where}"


def rows(summary: Summary, most: int | None = None) -> Iterator[Row]:
    """Return a time breakdown by cause, the largest first; the last row is the sum, which is the makespan.

    Args:
        most: how many rows at most; the smaller causes are then one row.
    """
    causes = [cause for cause in CAUSES if _size_s(summary, cause)]
    causes.sort(key=lambda cause: -_size_s(summary, cause))
    large = len(causes) if most is None or len(causes) < most else most - 2  # besides the others and the sum
    for cause in causes[:large]:
        yield _cause_row(cause.title, summary, [cause], where(summary.breakdown, cause))
    if others := causes[large:]:
        yield _cause_row(f"{len(others)} other causes", summary, others, "")
    total, path = sum(summary.breakdown.values()), sum(summary.path.values())
    digits = decimals(summary.makespan_s)
    yield (
        "together",
        format_fixed(total, digits),
        percent(total / summary.makespan_s, 1),
        format_fixed(path, digits),
        "",
    )


def _size_s(summary: Summary, cause: Cause) -> float:
    """Return the seconds of a cause, on the critical path or of all threads: whichever is more."""
    return max(summary.by_cause.get(cause, 0.0), summary.path_by_cause.get(cause, 0.0))


def _cause_row(title: str, summary: Summary, causes: Sequence[Cause], place: str) -> Row:
    seconds, path = (
        sum(cells.get(cause, 0.0) for cause in causes) for cells in (summary.by_cause, summary.path_by_cause)
    )
    digits = decimals(summary.makespan_s)
    return (
        title,
        format_fixed(seconds, digits),
        percent(seconds / summary.makespan_s, 1),
        format_fixed(path, digits),
        place,
    )


def place_in_code(code: tuple[str, int, str]) -> str:
    """Return ``file:line text``, or ``In [7], line 2: text`` of a notebook; the text cut to fit a table."""
    file, line, text = code
    cut = text if len(text) <= MOST_CODE else f"{text[: MOST_CODE - 3]}..."
    if cell := CELL.fullmatch(file):
        return f"In [{cell[1]}], line {line}: {cut}".rstrip(": ")
    return f"{Path(file).name}:{line} {cut}".rstrip() if file else ""


def where(cells: ByCause, cause: Cause) -> str:
    """Name the places of most of a cause's seconds."""
    left_out = ("client", "") if cause.group is Group.CLIENT else ("",)
    places = [(host, seconds) for host, seconds in hosts(cells, cause) if host not in left_out]
    most = max((abs(seconds) for _, seconds in places), default=0.0)
    return ", ".join(
        f"{host} {format_fixed(seconds, 2)}" for host, seconds in places[:3] if abs(seconds) > most / 10
    )


def starved(waiting_s: Mapping[str, float], makespan_s: float) -> str:
    """Name the processes that waited long for a CPU: too few CPUs look like worker lag."""
    longest = sorted(waiting_s.items(), key=lambda item: -item[1])
    parts = [f"{node} {seconds:.2f} s" for node, seconds in longest if seconds > LONG_CPU_WAIT * makespan_s]
    return f"Waited for a CPU: {', '.join(parts)}." if parts else ""


def clock_rows(clocks: Mapping[str, Clock]) -> Iterator[Row]:
    """Return each clock: its offset to the reference, the interval of possible offsets, its skew."""
    for node, clock in clocks.items():
        low, high = (format_fixed(1e3 * end_s, 2) for end_s in (clock.low_s, clock.high_s))
        between = f"{low} to {high}" if math.isfinite(clock.high_s - clock.low_s) else "unknown"
        note = "" if clock.linear else f"not linear, by {-1e3 * clock.margin_s:.2f} ms"
        offset, skew = format_fixed(1e3 * clock.offset_s, 3), format_fixed(1e6 * clock.skew, 0)
        yield node, offset, between, skew, str(clock.pairs), note


def bandwidth_sentence(estimates: Sequence[BandwidthEstimate]) -> str:
    """Name the pair that achieved least compared with what Dask plans with."""
    ratios = [(pair.planned / pair.measured, pair) for pair in estimates if pair.measured]
    if not ratios:
        return ""
    ratio, worst = max(ratios, key=lambda item: item[0])
    comparison = f"{ratio:.1f} times less." if ratio > 1 else "no pair achieved less than planned."
    return (
        f"Dask plans with {_mb(worst.planned)} MB/s between all pairs; {worst.receiver} received"
        f" {_mb(worst.measured)} MB/s from {worst.sender}: {comparison}"
    )


def bandwidth_rows(estimates: Sequence[BandwidthEstimate]) -> Iterator[Row]:
    """Return a row per pair, in MB/s."""
    for pair in estimates:
        rates = (pair.planned, pair.by_pair, pair.fetched, pair.probed)
        yield (pair.receiver, pair.sender, *map(_mb, rates))


def _mb(bytes_per_s: float | None) -> str:
    return "" if bytes_per_s is None else f"{bytes_per_s / 1e6:.1f}"


def stage_rows(repeats: Sequence[Repeat]) -> Iterator[Row]:
    for stage in stage_lengths(repeats):
        lengths = map(format_number, (stage.median_ms, stage.low_ms, stage.high_ms))
        yield (stage.title, *lengths, "yes" if stage.moves_with_link else "")


def graph_rows(graphs: GraphTimes | None) -> Iterator[Row]:
    for stage in GRAPH_STAGES if graphs else ():
        seconds = graphs.seconds[stage.name] if graphs else 0.0
        per_task = format_number(1e6 * seconds / graphs.tasks) if graphs and graphs.tasks else ""
        yield stage.title, format_number(1e3 * seconds), per_task, "yes" if stage.moves_with_link else ""


def graph_size(graphs: GraphTimes | None) -> str:
    if not graphs or not graphs.tasks:
        return ""
    per_task = graphs.nbytes / graphs.tasks
    if not graphs.nbytes:
        return f"Graphs: {graphs.tasks:.0f} tasks."
    return f"Graphs: {graphs.tasks:.0f} tasks, {data_size(graphs.nbytes)}, {per_task:.0f} bytes per task."


def growth_rows(cells: Mapping[str, GraphTimes]) -> Iterator[Row]:
    """Return microseconds per task of each stage, a column per cell, and its exponent."""
    exponents = growth(list(cells.values()))
    for stage in GRAPH_STAGES:
        per_task = (
            format_number(1e6 * graphs.seconds[stage.name] / max(1, graphs.tasks))
            for graphs in cells.values()
        )
        exponent = f"{exponents[stage.name]:.2f}" if stage.name in exponents else ""
        yield (stage.title, *per_task, exponent)


def growth_head(cells: Mapping[str, GraphTimes]) -> Row:
    sizes = (f"{name}: {graphs.tasks:.0f} tasks" for name, graphs in cells.items())
    return ("stage of a graph, µs per task", *sizes, "exponent")


def quadratic_growth(graphs: Sequence[GraphTimes]) -> str:
    titles = [stage.title for stage in quadratic(graphs)]
    return f"Grows with the square of the number of tasks, or nearly: {'; '.join(titles)}." if titles else ""
