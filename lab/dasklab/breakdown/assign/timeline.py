"""Walk the stages of many tasks backwards at once: where each timeline begins, and the causes of its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.assign.transfers import explain_data, split
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask
from dasklab.breakdown.model.intervals import Windows
from dasklab.breakdown.model.repeat import SCHEDULER_CODE, Repeat
from dasklab.breakdown.model.stages import (
    SCHEDULER_CHOICE,
    Process,
    Rule,
    Stage,
    stages_after_stop,
    stages_before_start,
)

TIMER_S = 0.005  # Dask's longest interval between two batches; workers have 2 ms


@dataclass(frozen=True)
class TimelineStarts:
    """Where the timeline of each task begins, and the task that ended there (``NONE``: another event)."""

    start: Floats
    trigger: Codes


class Cursors:
    """Moments that are moved backwards from stamp to stamp, one for each task."""

    def __init__(self, time: Floats) -> None:
        self.time = time

    def back_to(self, stamp: Floats) -> tuple[Mask, Floats, Floats]:
        """Go back to a stamp, where it was taken and is earlier.

        Returns:
            Which of them moved, and from where to where (start, stop) in time.
        """
        moved = stamp < self.time
        stop, self.time = self.time, np.where(moved, stamp, self.time)
        return moved, self.time, stop


def timeline_starts(repeat: Repeat) -> TimelineStarts:
    """Find where each task's timeline begins."""
    cursors = Cursors(repeat.tasks.start)
    for stage in stages_before_start():
        cursors.back_to(repeat.tasks.stamps[stage.start])
    trigger = _triggers(repeat)
    has = trigger != NONE
    cursors.back_to(np.where(has, repeat.tasks.stamps[SCHEDULER_CHOICE.start][trigger], np.nan))
    for stage in stages_after_stop():
        cursors.back_to(np.where(has, repeat.tasks.stamps[stage.start][trigger], np.nan))
    return TimelineStarts(cursors.time, trigger)


def _triggers(repeat: Repeat) -> Codes:
    """Return the trigger of each task, unless it is the task itself or the choice was not recorded."""
    itself = repeat.tasks.trigger == np.arange(len(repeat.tasks))
    return np.where(itself | np.isnan(repeat.tasks.stamps[SCHEDULER_CHOICE.stop]), NONE, repeat.tasks.trigger)


def report_starts(repeat: Repeat) -> Floats:
    """Find for each task where the walk back from its handled report ends: at the end of the task."""
    cursors = Cursors(repeat.tasks.handled)
    for stage in stages_after_stop():
        cursors.back_to(repeat.tasks.stamps[stage.start])
    return cursors.time


def explain_before(repeat: Repeat, windows: Windows) -> None:
    """Add to each window the timeline of its task up to the task's start, as far as it lies within."""
    task = windows.task
    rows = np.arange(len(task))
    cursors = Cursors(repeat.tasks.start[task])
    for stage in stages_before_start():
        _step(repeat, windows, rows, task, stage, cursors)
    trigger = _triggers(repeat)[task]
    has = trigger != NONE
    moved, start, stop = cursors.back_to(
        np.where(has, repeat.tasks.stamps[SCHEDULER_CHOICE.start][trigger], np.nan)
    )
    scheduler = np.full(moved.sum(), SCHEDULER_CODE)
    windows.add(rows[moved], start[moved], stop[moved], SCHEDULER_CHOICE.causes[0], scheduler)
    after = Cursors(cursors.time[has])
    for stage in stages_after_stop():
        _step(repeat, windows, rows[has], trigger[has], stage, after)


def explain_after(repeat: Repeat, windows: Windows) -> None:
    """Add to each window what happened from the end of its task until the window's end."""
    cursors = Cursors(windows.stop)
    for stage in stages_after_stop():
        _step(repeat, windows, np.arange(len(windows.stop)), windows.task, stage, cursors)


def _step(repeat: Repeat, windows: Windows, rows: Codes, task: Codes, stage: Stage, cursors: Cursors) -> None:
    """Go back through one stage, and add its time to the windows.

    Args:
        rows: windows, one for each cursor.
        task: the tasks whose stages these are; not those of the windows, where they triggered them.
    """
    moved, start, stop = cursors.back_to(repeat.tasks.stamps[stage.start][task])
    rows, task, start, stop = rows[moved], task[moved], start[moved], stop[moved]
    worker = repeat.tasks.worker[task]
    scheduler = np.full(len(task), SCHEDULER_CODE)
    place, peer = (scheduler, worker) if stage.place is Process.SCHEDULER else (worker, scheduler)
    if stage.rule is Rule.WHOLE:
        windows.add(rows, start, stop, stage.causes[0], place)
    elif stage.rule is Rule.DATA:
        explain_data(repeat, windows, rows, start, stop)
    elif stage.rule is Rule.SEND_TIMER:
        late, timer = stage.causes
        free = np.minimum(np.fmax(start, repeat.tasks.stamps[stage.due][task]), stop)
        timer_start = np.minimum(free, np.maximum(start, free - TIMER_S))
        windows.add(rows, free, stop, late, place)
        windows.add(rows, timer_start, free, timer, place)
        windows.add(rows, start, timer_start, late, place)
    else:
        sender_cause, wire, receiver_cause = stage.causes
        parts = split(repeat, peer, place, start, stop)
        windows.add(rows, start, parts.wire_start, sender_cause, peer)
        windows.add(rows, parts.wire_start, parts.wire_stop, wire, repeat.places.pair(place, peer))
        windows.add(rows, parts.wire_stop, stop, receiver_cause, place)
