"""The panel of threads: the critical path, and below it what each worker thread did.

A rectangle's height shows the kind of time: working fills the row, waiting most of it, idle time a thin line.
So working and waiting differ without colours, too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.arrays import NONE
from dasklab.breakdown.model.causes import CAUSES, PARTS, Kind
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat
from dasklab.report.drawings.timeline.plain import Texts, short_name
from dasklab.report.drawings.timeline.rectangles import SEVERAL, Panel, Rectangles, Row, concatenate

HEIGHTS = {Kind.WORK: (0.04, 0.96), Kind.WAITING: (0.16, 0.84), Kind.IDLE: (0.38, 0.62)}


def threads_panel(repeat: Repeat) -> Panel:
    """Show the critical path, and below it all threads."""
    path, intervals = critical_path(repeat), break_down(repeat)
    number: Counter[str] = Counter()
    rows = [Row("critical path", "path")]
    for worker, _ in repeat.thread_rows[1]:
        number[worker] += 1
        several = repeat.threads[worker] > 1
        suffix = f" #{number[worker]}" if several else ""
        rows.append(Row(worker + suffix, short_name(worker) + suffix.strip()))
    names = Texts()
    parts = [_of_intervals(repeat, path, 0, names), _of_intervals(repeat, intervals, 1, names)]
    details = [repeat.keys[key] for key in repeat.tasks.key.tolist()]
    return Panel("Threads", rows, concatenate(parts), names.texts, details)


def _of_intervals(repeat: Repeat, intervals: Intervals, first_row: int, names: Texts) -> Rectangles:
    cells, index = np.unique(np.column_stack([intervals.cause, intervals.place]), axis=0, return_inverse=True)
    texts = np.array([names.code(_description(repeat, *cell)) for cell in cells.tolist()], np.int64)
    heights = np.array([HEIGHTS[cause.kind] for cause in CAUSES])[intervals.cause]
    colours = np.array([PARTS.index(cause.part) for cause in CAUSES])
    return Rectangles(
        left=intervals.start - repeat.start,
        right=intervals.stop - repeat.start,
        row=intervals.lane + first_row,
        low=heights[:, 0],
        high=heights[:, 1],
        colour=colours[intervals.cause],
        what=texts[index.reshape(-1)] if len(texts) else np.zeros(0, np.int64),
        detail=np.where(intervals.task == NONE, SEVERAL, intervals.task),
        count=np.ones(len(intervals), np.int64),
    )


def _description(repeat: Repeat, cause: int, place: int) -> str:
    title, name = CAUSES[cause].title, repeat.places.name(place)
    return f"{title} ({name})" if " < " in name else title
