"""Which line of the user's program runs, and whether the program waits for the cluster there.

Theory of operation
-------------------
The innermost frame whose file is the user's says what the program does: not one of the standard library or of
an installed package. A thread looks at it some 20 times a second, and adds a row when it has changed. The
program waits for the cluster if Dask's client waits for an event below that frame; it builds a graph if it
called Dask and does not wait. A coroutine that waits has
no frame in any thread: its chain of awaited coroutines is followed instead.
"""

from __future__ import annotations

import asyncio
import linecache
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from distributed.metrics import time

from dasklab.records.recorder.base import guarded
from dasklab.records.recorder.store import Store

RUNS, WAITS, COMPUTES, BUILDS = 0, 1, 2, 3
"""What the program does: anything, wait in Dask's client, compute with a scheduler of its own process, or
call Dask without a wait, which builds a graph."""

SENDS_GRAPH = ("submit", "map", "compute", "persist", "get")  # methods of a client
INTERVAL_S = 0.05
MAX_INTERVAL_S = 0.5  # between two looks that are of one line only if both see the same
# Packages whose code is not the user's, wherever they are installed.
LIBRARIES = ("dask", "distributed", "dasklab", "tornado", "toolz")
STANDARD_LIBRARY = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
INSTALLED = ("site-packages", "dist-packages")


class CodeLine(NamedTuple):
    """A line of the user's program: its file or notebook cell, its number, its text."""

    file: str = ""
    number: int = 0
    code: str = ""


class Look(NamedTuple):
    """What was seen: when, at which line, and what the program did there, such as RUNS."""

    time: float
    line: CodeLine
    activity: int


def line_of(frame: FrameType | None) -> CodeLine | None:
    """Return the innermost line of the user's code at or above a frame; None without any."""
    while frame is not None:
        if _is_users(frame):
            return _line(frame)
        frame = frame.f_back
    return None


def _is_users(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return not (
        _package(frame) in LIBRARIES
        or path.startswith(("<frozen", *STANDARD_LIBRARY))
        or any(folder in path for folder in INSTALLED)
    )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _line(frame: FrameType) -> CodeLine:
    path, number = frame.f_code.co_filename, frame.f_lineno
    return CodeLine(_cell(path) or path, number, " ".join(linecache.getline(path, number).split()))


def _cell(path: str) -> str:
    """Return the name of the notebook's cell that a file stands for, as ``In[3]``; empty if it is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", lambda path: None)
    _, cell = name_of(path) or ("", "")
    return str(cell)


class UserProgram:
    """The thread, or the coroutine, that runs the user's block; made there."""

    def __init__(self) -> None:
        self.thread, self.native_thread = threading.get_ident(), threading.get_native_id()
        try:
            self.task = asyncio.current_task()
        except RuntimeError:  # no event loop runs in this thread
            self.task = None

    def line(self) -> CodeLine:
        """Return the line of the user's code that runs."""
        return self.look(0.0).line

    def look(self, now: float) -> Look:
        """Return what the program does."""
        coroutine: Any = self.task.get_coro() if self.task else None
        if coroutine is not None and not getattr(coroutine, "cr_running", True):
            frames = list(_awaited(coroutine))
            waits_in = frames
        else:
            frames = list(_stack(sys._current_frames().get(self.thread)))
            in_event = bool(frames) and _package(frames[0]) == "threading"
            waits_in = frames if in_event else []
        inside = next((position for position, frame in enumerate(frames) if _is_users(frame)), None)
        if inside is None:
            return Look(now, CodeLine(), RUNS)
        if any(_package(frame) == "distributed" for frame in waits_in[:inside]):
            return Look(now, _line(frames[inside]), WAITS)
        if any(_module(frame) == "dask.local" for frame in frames):
            return Look(now, _line(frames[inside]), COMPUTES)
        callee = frames[inside - 1] if inside else None
        builds = callee is not None and (
            _package(callee) == "dask"
            or (_module(callee) == "distributed.client" and callee.f_code.co_name in SENDS_GRAPH)
        )
        return Look(now, _line(frames[inside]), BUILDS if builds else RUNS)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Return frames, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaited(coroutine: Any) -> list[FrameType]:
    """Return the frames of a coroutine that waits and of those that it awaits, the innermost first."""
    frames = []
    while coroutine is not None:
        frame = _first(coroutine, "cr_frame", "gi_frame", "ag_frame")
        if frame is None:
            break
        frames.append(frame)
        coroutine = _first(coroutine, "cr_await", "gi_yieldfrom", "ag_await")
    return frames[::-1]


def _first(coroutine: Any, *names: str) -> Any:
    """Return the first of some attributes that is there and not None."""
    return next((value for name in names if (value := getattr(coroutine, name, None)) is not None), None)


class LineRecorder:
    """Looks at the user's program until it is stopped, and records for how long each line ran."""

    def __init__(self, program: UserProgram, store: Store) -> None:
        self.program, self.store = program, store
        self.start = time()  # of the line that was seen last
        self.last: Look | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dasklab-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._end(time())

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self._look()

    @guarded
    def _look(self) -> None:
        look, last = self.program.look(time()), self.last
        if last is not None and look[1:] != last[1:]:
            unseen = min(look.time - last.time, MAX_INTERVAL_S)  # of a longer one neither line is known
            self._end(last.time + unseen / 2)
            self.start = look.time - unseen / 2
        self.last = look

    def _end(self, stop: float) -> None:
        if self.last is not None:
            self.store.logs["lines"].add(self.start, stop, self.last.activity, *self.last.line)
