"""The panel of messages between scheduler and workers, and of the times when event loops were busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.repeat import SCHEDULER, Repeat
from dasklab.report.drawings.timeline.plain import IDLE, Texts, direction, rectangles, short_name
from dasklab.report.drawings.timeline.rectangles import SEVERAL, Panel, Row, concatenate
from dasklab.results.recording import Recording

MAX_DIRECTIONS = 24  # those with most messages


def messages_panel(repeat: Repeat) -> Panel:
    """Show the messages about tasks between scheduler and workers, from the stamps of the tasks."""
    stamps, nodes = repeat.tasks.stamps, repeat.places.nodes
    scheduler = np.full(len(repeat.tasks), nodes.index(SCHEDULER))
    ways = (
        ("run this task", scheduler, repeat.tasks.worker, stamps["sent"], stamps["arrived"]),
        ("this task has ended", repeat.tasks.worker, scheduler, stamps["reported"], stamps["handled"]),
    )
    texts: list[str] = []
    columns: list[tuple[Codes, Codes, Floats, Floats, Codes]] = []
    details: list[str] = []
    for text, source, target, start, stop in ways:
        usable = (
            (start <= stop) & (stop > repeat.start) & (start < repeat.stop)
        )  # false where a stamp is missing
        columns.append(
            (source[usable], target[usable], start[usable], stop[usable], np.full(usable.sum(), len(texts)))
        )
        texts.append(text)
        details += [repeat.keys[key] for key in repeat.tasks.key[usable].tolist()]
    source, target, start, stop, what = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _message_panel(repeat, (source, target, start, stop), what, texts, details)


def captured_messages_panel(repeat: Repeat, capture: Recording) -> Panel:
    """Show the messages that the packets of a capture showed, of the busiest directions."""
    nodes = repeat.places.nodes
    during = [
        row
        for row in capture.rows("messages")
        if row["source"] in nodes
        and row["destination"] in nodes
        and repeat.start <= row["time_ns"] / 1e9 < repeat.stop
    ]
    busiest = Counter((row["source"], row["destination"]) for row in during).most_common(MAX_DIRECTIONS)
    directions = {pair for pair, _ in busiest}
    during = [row for row in during if (row["source"], row["destination"]) in directions]
    names = Texts()
    what = np.array([names.code(str(row["op"] or row["kind"])) for row in during], np.int64)
    source, target = (
        np.array([nodes.index(row[end]) for row in during], np.int64) for end in ("source", "destination")
    )
    start, stop = (np.array([row[end] / 1e9 for row in during], float) for end in ("time_ns", "end_ns"))
    details = [f"{row['bytes']:,} bytes" for row in during]
    return _message_panel(repeat, (source, target, start, stop), what, names.texts, details)


def _message_panel(
    repeat: Repeat,
    columns: tuple[Codes, Codes, Floats, Floats],
    what: Codes,
    texts: Sequence[str],
    details: Sequence[str],
) -> Panel:
    """Show messages in a row for each direction, and below them when event loops were busy."""
    source, target, start, stop = columns
    nodes, busy = repeat.places.nodes, repeat.busy
    codes, row = np.unique(source * len(nodes) + target, return_inverse=True)
    rows = [direction(nodes[code // len(nodes)], nodes[code % len(nodes)]) for code in codes.tolist()]
    full = np.full(len(start), 0.16), np.full(len(start), 0.84)
    messages = rectangles(repeat, row, start, stop, what, full)
    during = np.flatnonzero((busy.stop > repeat.start) & (busy.start < repeat.stop))
    members, loop_row = np.unique(busy.member[during], return_inverse=True)
    rows += [
        Row(f"event loop of {nodes[member]}", f"{short_name(nodes[member])} loop")
        for member in members.tolist()
    ]
    full = np.full(len(during), 0.04), np.full(len(during), 0.96)
    text = np.full(len(during), len(texts))
    loops = rectangles(repeat, loop_row + len(codes), busy.start[during], busy.stop[during], text, full)
    loops = replace(loops, colour=np.full(len(during), IDLE), detail=np.full(len(during), SEVERAL))
    descriptions = [*texts, "event loop busy"]
    return Panel("Messages and event loops", rows, concatenate([messages, loops]), descriptions, details)
