"""The panels of a run's timeline: threads, transfers, messages and event loops, links.

A rectangle's height shows the kind of time: working fills the row, waiting most of it, idle time a thin line.
So working and waiting differ without colours, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dasklab.breakdown.causes import CAUSES, Group, Kind
from dasklab.breakdown.critical_path import critical_path
from dasklab.breakdown.intervals import NO_TASK, Codes, Floats, Intervals
from dasklab.breakdown.lanes import lanes
from dasklab.breakdown.run import SCHEDULER, Run
from dasklab.breakdown.threads import break_down
from dasklab.model.number_format import format_number, format_quantity
from dasklab.report.time_parts import PART_OF, PARTS
from dasklab.report.timeline.rectangles import SEVERAL, Panel, Rectangles, Row, concatenate
from dasklab.results.storage.recording import Recording

HEIGHTS = {Kind.WORK: (0.04, 0.96), Kind.WAITING: (0.16, 0.84), Kind.IDLE: (0.38, 0.62)}
MOST_PAIRS = 30  # with more pairs of workers, transfers have a row for each receiver
MOST_KEYS = 3  # of a transfer that are named
MOST_DIRECTIONS = 24  # of captured messages, those with most of them
RATE_STEPS = 600  # of the time axis, for rates
LEAST_RATE = 0.002  # of the highest rate; less is not drawn
DATA, SCHEDULER_COLOUR, IDLE = (
    PARTS.index(PART_OF[group]) for group in (Group.DATA, Group.SCHEDULER, Group.IDLE)
)


def panels(run: Run, capture: Recording | None = None) -> list[Panel]:
    """Return the panels that have something to show.

    Args:
        capture: if the captured runs are explained, with the messages that packets showed.
    """
    messages = _captured_messages(run, capture) if capture else _messages(run)
    return [panel for panel in (_threads(run), _transfers(run), messages, _links(run)) if panel.intervals]


def short_name(name: str) -> str:
    """Return a host's name for narrow screens: ``w1`` for ``worker-1``; else the end of the name."""
    match = re.fullmatch(r"([a-z])[a-z]*(?:-(\d[\d-]*))?", name)
    return f"{match[1]}{match[2] or ''}" if match else name[-8:]


def _row(*names: str) -> Row:
    return Row(" \u2192 ".join(names), "\u2192".join(map(short_name, names)))


def _threads(run: Run) -> Panel:
    """Show the critical path, and below it all threads."""
    path, threads = critical_path(run), break_down(run)
    number: Counter[str] = Counter()
    rows = [Row("critical path", "path")]
    for worker, _ in run.thread_rows[1]:
        number[worker] += 1
        several = run.threads[worker] > 1
        suffix = f" #{number[worker]}" if several else ""
        rows.append(Row(worker + suffix, short_name(worker) + suffix.strip()))
    names = _Texts()
    parts = [_of_intervals(run, path, 0, names), _of_intervals(run, threads, 1, names)]
    details = [run.keys[key] for key in run.tasks.key.tolist()]
    return Panel("Threads", rows, concatenate(parts), names.texts, details)


def _of_intervals(run: Run, intervals: Intervals, first_row: int, names: _Texts) -> Rectangles:
    cells, index = np.unique(np.column_stack([intervals.cause, intervals.place]), axis=0, return_inverse=True)
    texts = np.array([names.code(_description(run, *cell)) for cell in cells.tolist()], np.int64)
    heights = np.array([HEIGHTS[cause.kind] for cause in CAUSES])[intervals.cause]
    colours = np.array([PARTS.index(PART_OF[cause.group]) for cause in CAUSES])
    return Rectangles(
        left=intervals.start - run.start,
        right=intervals.stop - run.start,
        row=intervals.lane + first_row,
        low=heights[:, 0],
        high=heights[:, 1],
        colour=colours[intervals.cause],
        what=texts[index.reshape(-1)] if len(texts) else np.zeros(0, np.int64),
        detail=np.where(intervals.task == NO_TASK, SEVERAL, intervals.task),
        count=np.ones(len(intervals), np.int64),
    )


def _description(run: Run, cause: int, place: int) -> str:
    title, name = CAUSES[cause].title, run.places.name(place)
    return f"{title} ({name})" if " < " in name else title


class _Texts:
    """Texts, each of them once, with their positions."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        if text not in self._codes:
            self._codes[text] = len(self.texts)
            self.texts.append(text)
        return self._codes[text]


def _transfers(run: Run) -> Panel:
    """Show each fetch in the row of its pair of workers; those that overlap lie above each other."""
    fetches, names = run.fetches, run.places.nodes
    pair = fetches.receiver * len(names) + fetches.sender
    by_pair = len(np.unique(pair)) <= MOST_PAIRS
    codes, row = np.unique(pair if by_pair else fetches.receiver, return_inverse=True)
    rows = [
        _row(names[code % len(names)], names[code // len(names)]) if by_pair else _row("", names[code])
        for code in codes.tolist()
    ]
    low, high = _stacked(row, fetches.start, fetches.stop)
    descriptions = _Texts()
    what = [
        descriptions.code(f"{'refused, busy: ' if busy else ''}from {names[sender]} to {names[receiver]}")
        for sender, receiver, busy in zip(
            fetches.sender.tolist(), fetches.receiver.tolist(), fetches.busy.tolist(), strict=True
        )
    ]
    rectangles = _rectangles(run, row, fetches.start, fetches.stop, np.array(what, np.int64), (low, high))
    colour = np.where(fetches.busy, IDLE, DATA)
    details = [_amount(run, number) for number in range(len(fetches))]
    return Panel("Transfers", rows, replace(rectangles, colour=colour), descriptions.texts, details)


def _amount(run: Run, fetch: int) -> str:
    """Describe what a fetch brought: ``2.10 MB, 45.0 Mbit/s: x, y, z and 4 more``."""
    keys = [run.keys[key] for key in run.fetched[fetch]]
    names = ", ".join(keys[:MOST_KEYS])
    more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
    seconds = float(run.fetches.stop[fetch] - run.fetches.start[fetch])
    moved = float(run.moved[fetch])
    rate = f", {format_quantity(8e-6 * moved / seconds, 'Mbit/s')}" if seconds > 0 and moved else ""
    return f"{format_number(moved / 1e6)} MB{rate}: {names}{more}"


def _stacked(row: Codes, start: Floats, stop: Floats) -> tuple[Floats, Floats]:
    """Divide each row among what overlaps in it; return the low and the high ends."""
    lane = lanes(row, start, stop)
    most = np.ones(int(row.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, row, lane + 1)
    return 0.06 + 0.88 * lane / most[row], 0.06 + 0.88 * (lane + 1) / most[row]


def _rectangles(
    run: Run, row: Codes, start: Floats, stop: Floats, what: Codes, ends: tuple[Floats, Floats]
) -> Rectangles:
    """Return rectangles with a detail each, in the colour of the scheduler's part."""
    number = len(start)
    return Rectangles(
        left=np.clip(start, run.start, run.stop) - run.start,
        right=np.clip(stop, run.start, run.stop) - run.start,
        row=row,
        low=ends[0],
        high=ends[1],
        colour=np.full(number, SCHEDULER_COLOUR),
        what=what,
        detail=np.arange(number),
        count=np.ones(number, np.int64),
    )


def _messages(run: Run) -> Panel:
    """Show the messages about tasks between scheduler and workers, from the stamps of the tasks."""
    stamps, nodes = run.tasks.stamps, run.places.nodes
    scheduler = np.full(len(run.tasks), nodes.index(SCHEDULER))
    ways = (
        ("run this task", scheduler, run.tasks.worker, stamps["sent"], stamps["arrived"]),
        ("this task has ended", run.tasks.worker, scheduler, stamps["reported"], stamps["handled"]),
    )
    texts: list[str] = []
    columns: list[tuple[Codes, Codes, Floats, Floats, Codes]] = []
    details: list[str] = []
    for text, source, target, start, stop in ways:
        seen = ~(np.isnan(start) | np.isnan(stop)) & (stop >= start) & (stop > run.start) & (start < run.stop)
        columns.append((source[seen], target[seen], start[seen], stop[seen], np.full(seen.sum(), len(texts))))
        texts.append(text)
        details += [run.keys[key] for key in run.tasks.key[seen].tolist()]
    source, target, start, stop, what = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _message_panel(run, (source, target, start, stop), what, texts, details)


def _captured_messages(run: Run, capture: Recording) -> Panel:
    """Show the messages that the packets of a capture showed, of the busiest directions."""
    nodes = run.places.nodes
    during = [
        row
        for row in capture.rows("messages")
        if row["source"] in nodes
        and row["destination"] in nodes
        and run.start <= row["time_ns"] / 1e9 < run.stop
    ]
    busiest = Counter((row["source"], row["destination"]) for row in during).most_common(MOST_DIRECTIONS)
    wanted = {pair for pair, _ in busiest}
    during = [row for row in during if (row["source"], row["destination"]) in wanted]
    names = _Texts()
    what = np.array([names.code(str(row["op"] or row["kind"])) for row in during], np.int64)
    source, target = (
        np.array([nodes.index(row[end]) for row in during], np.int64) for end in ("source", "destination")
    )
    start, stop = (np.array([row[end] / 1e9 for row in during], float) for end in ("time_ns", "end_ns"))
    details = [f"{row['bytes']:,} bytes" for row in during]
    return _message_panel(run, (source, target, start, stop), what, names.texts, details)


def _message_panel(
    run: Run,
    columns: tuple[Codes, Codes, Floats, Floats],
    what: Codes,
    texts: Sequence[str],
    details: Sequence[str],
) -> Panel:
    """Show messages in a row for each direction, and below them when event loops were busy."""
    source, target, start, stop = columns
    nodes, busy = run.places.nodes, run.busy
    codes, row = np.unique(source * len(nodes) + target, return_inverse=True)
    rows = [_row(nodes[code // len(nodes)], nodes[code % len(nodes)]) for code in codes.tolist()]
    full = np.full(len(start), 0.16), np.full(len(start), 0.84)
    messages = _rectangles(run, row, start, stop, what, full)
    during = np.flatnonzero((busy.stop > run.start) & (busy.start < run.stop))
    members, loop_row = np.unique(busy.member[during], return_inverse=True)
    rows += [
        Row(f"event loop of {nodes[member]}", f"{short_name(nodes[member])} loop")
        for member in members.tolist()
    ]
    full = np.full(len(during), 0.04), np.full(len(during), 0.96)
    text = np.full(len(during), len(texts))
    loops = _rectangles(run, loop_row + len(codes), busy.start[during], busy.stop[during], text, full)
    loops = replace(loops, colour=np.full(len(during), IDLE), detail=np.full(len(during), SEVERAL))
    descriptions = [*texts, "event loop busy"]
    return Panel("Messages and event loops", rows, concatenate([messages, loops]), descriptions, details)


def _links(run: Run) -> Panel:
    """Show the rate of fetched data into and out of each worker: the height of a rectangle is the rate."""
    fetches, names = run.fetches, run.places.nodes
    edges = np.linspace(run.start, run.stop, RATE_STEPS + 1)
    ways = (("into", fetches.receiver), ("out of", fetches.sender))
    rates = {
        (way, int(worker)): _rate(run, node == worker, edges)
        for worker in run.workers
        for way, node in ways
        if (run.moved[node == worker] > 0).any()
    }
    highest = max((float(rate.max()) for rate in rates.values()), default=0.0)
    if not highest:
        return Panel("Links", [], _empty(), [], [])
    rows = [Row(f"{way} {names[w]}", f"{way.split()[0]} {short_name(names[w])}") for way, w in rates]
    parts, texts = [], _Texts()
    for row, rate in enumerate(rates.values()):
        some = np.flatnonzero(rate > LEAST_RATE * highest)
        detail = [texts.code(format_quantity(value, "Mbit/s")) for value in rate[some].tolist()]
        low, high = 0.98 - 0.94 * rate[some] / highest, np.full(len(some), 0.98)  # rows grow downwards
        what = np.full(len(some), row)
        part = _rectangles(run, what, edges[some], edges[some + 1], what, (low, high))
        parts.append(replace(part, detail=np.array(detail, np.int64), colour=np.full(len(some), DATA)))
    title = f"Links: fetched data, up to {format_quantity(highest, 'Mbit/s')}"
    return Panel(title, rows, concatenate(parts), [f"data {row.label}" for row in rows], texts.texts)


def _empty() -> Rectangles:
    codes, floats = np.zeros(0, np.int64), np.zeros(0)
    return Rectangles(floats, floats, codes, floats, floats, codes, codes, codes, codes)


def _rate(run: Run, some: npt.NDArray[np.bool_], edges: Floats) -> Floats:
    """Return the Mbit/s in each step of time, if each fetch moves its data evenly.

    Packets show when the data was on the wire; without them it is the whole time of the fetch.
    """
    fetches = run.fetches
    start = np.where(np.isnan(fetches.first), fetches.start, fetches.first)[some]
    stop = np.where(np.isnan(fetches.last), fetches.stop, fetches.last)[some]
    stop = np.maximum(stop, start + 1e-6)
    speed = run.moved[some] / (stop - start)
    moved = _sum_of_ramps(stop, speed, edges) - _sum_of_ramps(start, speed, edges)
    return 8e-6 * np.maximum(np.diff(moved), 0) / np.diff(edges)


def _sum_of_ramps(end: Floats, speed: Floats, time: Floats) -> Floats:
    """Return for each time the sum of ``speed * min(time, end)`` over all ramps."""
    order = np.argsort(end)
    end, speed = end[order], speed[order]
    finished = np.searchsorted(end, time, side="right")
    up_to_end = np.append(0.0, np.cumsum(end * speed))[finished]
    going_on = (speed.sum() - np.append(0.0, np.cumsum(speed))[finished]) * time
    return up_to_end + going_on
