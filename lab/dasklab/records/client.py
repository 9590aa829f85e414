"""What the client does meanwhile: the graphs that it sends, and the calls in which it waits for the cluster.

Methods of one client are wrapped, in this process only; ``detach`` restores them.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import FrameType
from typing import Any

from distributed import Client
from distributed.metrics import time

from dasklab.records.recorder.base import guarded
from dasklab.records.recorder.layout import CLIENT
from dasklab.records.recorder.loops import watch_loop
from dasklab.records.recorder.store import Store

MOST_ROWS = 200_000
# Calls that move data or wait; a synchronous client makes all of them through ``sync``.
AWAITED = {"_gather": "wait", "_gather_remote": "gather", "_scatter": "scatter"}
# Packages whose code is not the user's.
LIBRARIES = (
    "dask",
    "distributed",
    "dasklab",
    "tornado",
    "asyncio",
    "concurrent",
    "threading",
    "contextlib",
    "toolz",
)
Line = tuple[str, int, str]
NO_LINE: Line = ("", 0, "")


class ClientRecorder:
    """Records the calls and graphs of one client."""

    def __init__(self, client: Client, code: bool) -> None:
        self.client, self.code = client, code
        self.store = Store(CLIENT, MOST_ROWS)
        self.undo: list[Callable[[], Any]] = []
        self.begin = 0.0  # of the graph that is being built
        self.lines: dict[tuple[str, int], int] = {}  # without code: a number for each line

    def attach(self) -> None:
        self._replace("_graph_to_futures", self._building)
        self._replace("_send_to_scheduler", self._sending)
        self._replace("sync", self._synchronous)
        for name, kind in AWAITED.items():
            self._replace(name, partial(self._awaited, kind))
        self.undo.append(watch_loop(self.client.loop, self.store.logs["busy"]))

    def detach(self) -> None:
        while self.undo:
            self.undo.pop()()

    def _replace(self, name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(self.client, name, None)
        if original is not None:
            setattr(self.client, name, wraps(original)(wrap(original)))
            self.undo.append(lambda: vars(self.client).pop(name, None))

    def _building(self, build: Callable[..., Any]) -> Callable[..., Any]:
        def building(*args: Any, **options: Any) -> Any:
            self.begin = time()
            return build(*args, **options)

        return building

    def _sending(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def sending(message: dict[str, Any]) -> Any:
            if message.get("op") == "update-graph":
                self._add_graph(message)
            return send(message)

        return sending

    @guarded
    def _add_graph(self, message: Mapping[str, Any]) -> None:
        packed = getattr(message.get("expr_ser"), "frames", message.get("graph_frames", ()))
        nbytes = float(sum(memoryview(frame).nbytes for frame in packed))
        row = (self.begin, time(), nbytes, len(message.get("keys", ())), *self.line())
        self.store.logs["graphs"].add(*row)

    def _synchronous(self, sync: Callable[..., Any]) -> Callable[..., Any]:
        def synchronous(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
            start, line = time(), self._guarded_line() or NO_LINE
            try:
                return sync(function, *args, **options)
            finally:
                self.store.logs["calls"].add("sync", start, time(), 0, 0.0, *line)

        return synchronous

    def _awaited(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*args: Any, **options: Any) -> Any:
            start = time()
            keys, nbytes = (self._payload(args[0]) if kind == "scatter" and args else None) or (0, 0.0)
            try:
                return await call(*args, **options)
            finally:
                self.store.logs["calls"].add(kind, start, time(), keys, nbytes, *NO_LINE)

        return awaited

    @guarded
    def _payload(self, data: Any) -> tuple[int, float]:
        return payload(data)

    @guarded
    def _guarded_line(self) -> Line:
        return self.line()

    def line(self) -> Line:
        """Return the line of the user's code that runs: file, number, text; a mere number without code."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            path = frame.f_code.co_filename
            if package not in LIBRARIES and "site-packages" not in path and not path.startswith("<frozen"):
                if not self.code:
                    return "", self.lines.setdefault((path, frame.f_lineno), len(self.lines) + 1), ""
                return path, frame.f_lineno, linecache.getline(path, frame.f_lineno).strip()
            frame = frame.f_back
        return NO_LINE


def payload(data: Any) -> tuple[int, float]:
    """Return the number of objects that are scattered, and their size as Dask estimates it."""
    from dask.sizeof import sizeof

    items = (
        list(data.values() if isinstance(data, dict) else data)
        if isinstance(data, (dict, list, tuple, set))
        else [data]
    )
    sample = items[:100]
    return len(items), float(sum(map(sizeof, sample))) * len(items) / max(1, len(sample))
