"""The line that is recorded is the user's: not the library's, and that of the thread that runs the block."""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path
from typing import Any

import dask
from dasklab.records.recorder.layout import CLIENT
from dasklab.records.recorder.store import Store
from dasklab.records.user_lines import BUILDS, COMPUTES, RUNS, CodeLine, LineRecorder, UserProgram, line_of

from tests.waiting import until

LIBRARY: dict[str, Any] = {"__name__": "dask.base", "line_of": line_of, "sys": sys}
exec("def line(self): return line_of(sys._getframe())", LIBRARY)


class Collection:
    line = functools.cached_property(LIBRARY["line"])


def test_standard_library_below_a_library_is_not_the_users_code() -> None:
    """Dask sends graphs from within ``functools.cached_property``, whose code is Python."""
    line = Collection().line
    assert line.code == "line = Collection().line" and Path(line.file).name == "test_user_lines.py"


def recorded(recorder: LineRecorder) -> list[CodeLine]:
    recorder.stop()
    return [CodeLine(*row[3:]) for row in recorder.store.logs["lines"].rows]


def test_line_of_the_program_is_seen_from_another_thread() -> None:
    recorder = LineRecorder(UserProgram(), Store(CLIENT, 100))
    until(lambda: recorder.last, "a look at this thread")
    lines = recorded(recorder)
    assert lines and all(Path(line.file).parts[-2:] == ("tests", "waiting.py") for line in lines)
    assert not recorder.store.failures


def test_line_of_a_coroutine_that_waits_is_seen_while_its_loop_runs_others() -> None:
    async def block() -> LineRecorder:
        recorder = LineRecorder(UserProgram(), Store(CLIENT, 100))
        await asyncio.to_thread(lambda: until(lambda: recorder.last, "a look"))
        return recorder

    lines = recorded(asyncio.run(block()))
    assert "await asyncio.to_thread(lambda: until(lambda: recorder.last" in lines[0].code


def test_dask_computes_in_this_process_also_while_a_task_of_the_users_runs() -> None:
    """The synchronous scheduler calls tasks in the program's own thread."""
    program = UserProgram()
    (look,) = dask.compute(dask.delayed(lambda: program.look(0.0))(), scheduler="synchronous")
    assert look.activity == COMPUTES


def test_dask_builds_a_graph_when_the_users_line_calls_it_and_does_not_wait() -> None:
    library: dict[str, Any] = {"__name__": "dask.base", "look": UserProgram().look}
    exec("def compute():\n    return look(0.0)", library)
    assert library["compute"]().activity == BUILDS
    client: dict[str, Any] = {"__name__": "distributed.client", "look": UserProgram().look}
    exec("def scatter():\n    return look(0.0)\n\ndef submit():\n    return look(0.0)", client)
    assert (client["scatter"]().activity, client["submit"]().activity) == (RUNS, BUILDS)
    assert UserProgram().look(0.0).activity == RUNS
