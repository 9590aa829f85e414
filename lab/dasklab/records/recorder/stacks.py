"""What event loops that are late, and tasks that wait, were doing: sampled stacks.

Theory of operation
-------------------
One thread of each process looks around ten times a second. It takes a stack for three reasons:

- ``blocked``: an event loop has run for LATE_S without waiting.
- ``waiting``: a task used no CPU since the previous look, and did not wait for one.
- ``held``: this thread was awake again and again, as one is that waits for the interpreter, while one other
  thread ran for much longer than Python lets a thread keep the interpreter.

While nothing is late it takes none. Of loops, and of tasks, at most MOST_A_MINUTE are taken, the further
apart the more there were, so that a long wait is seen to its end. What a stack shows is named here, where all
of it is known, by a word that is no secret.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dis import opname
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from distributed.metrics import time

from dasklab.records.recorder.loops import LoopWatch, watch_of
from dasklab.records.recorder.patches import Undo, share
from dasklab.records.recorder.process import KNOWS_SLEEPS, NAN, ThreadCpu, times_asleep
from dasklab.records.recorder.store import Store

INTERVAL_S = 0.1
LATE_S = 0.05  # an event loop that runs for longer at a time is late
HELD_UP_S = 0.1  # this thread itself is late by more where another one keeps the interpreter
LEAST_TASK_S = 0.04  # a task that no earlier look saw is not sampled
HELD_S = 0.05  # ten times as long as a thread may keep the interpreter that another one wants
AWAKE_S = 0.1  # a thread that waits for the interpreter is awake more often than this
IDLE = 0.1  # a thread that used less of a CPU waits
MOST_A_MINUTE = 50
SAMPLES_OF_A_STEP = 10  # after so many, they are taken half as often
MAX_FRAMES, MAX_FRAME_TEXT = 12, 200
MAX_DEPTH = 200
IMPORTING = "<frozen importlib"
BY_VALUE = "<dynamic-code>"  # how cloudpickle names the file, from 3.1.3 on
SERIALISERS = ("distributed", "pickle", "cloudpickle")
DISK_OF_RESULTS = "Slow"  # the part of distributed's SpillBuffer that is on disk
PICKLES = ("distributed.protocol.pickle", "pickle", "cloudpickle")
ENTERS_BLOCK = {"BEFORE_WITH", "SETUP_WITH"}  # bytecode that calls __enter__
ACQUIRES = ("acquire", "__enter__")


class InterpreterUse:
    """For how long threads held Python's interpreter: all of the time before each look that waited for it.

    Looks that waited, on two busy cores: 91 to 100 % beside threads in pure Python, sorting, or in C code
    that sleeps and keeps the interpreter; 0 to 9 % beside numpy, which releases it, or input and output. How
    long a thread ran each time that it had a CPU does not tell these apart: 0.6 to 3 ms, sorting or numpy.
    """

    def __init__(self) -> None:
        self.held_s = 0.0 if KNOWS_SLEEPS else NAN

    def add(self, seconds: float) -> None:
        self.held_s += seconds


class WatchedProcess(NamedTuple):
    """A process's server or client whose threads are looked at.

    Attributes:
        tasks: keys of tasks by the thread that runs them.
        pool: all threads that may run tasks.
        interpreter: for how long threads of the process held the interpreter.
    """

    store: Store
    loop: Any
    tasks: Mapping[int, Any] = {}
    pool: Callable[[], Sequence[threading.Thread]] = list
    interpreter: InterpreterUse | None = None


class Activity(NamedTuple):
    """What a stack shows: ``import``, ``lock``, ``sizeof``, ``spill``, ... or nothing that has a word.

    Attributes:
        name: what is imported, or the class of the lock; the user's.
    """

    word: str = ""
    name: str = ""


class Budget:
    """When to take a sample: at most MOST_A_MINUTE, the further apart the more there were."""

    def __init__(self) -> None:
        self.taken: deque[float] = deque()

    def interval_s(self, now: float) -> float:
        """Return the seconds that a sample stands for which is taken now; 0 if none may be taken."""
        while self.taken and now - self.taken[0] > 60:
            self.taken.popleft()
        seconds: float = INTERVAL_S * 2 ** (len(self.taken) // SAMPLES_OF_A_STEP)
        is_due = not self.taken or now - self.taken[-1] > seconds - INTERVAL_S / 2
        return seconds if is_due and self.remains else 0.0

    @property
    def remains(self) -> bool:
        return len(self.taken) < MOST_A_MINUTE


class StackSampler:
    """The thread that looks around, for all recorders of a process."""

    def __init__(self, watched: Mapping[int, WatchedProcess]) -> None:
        self.watched = watched
        self.loops, self.tasks = Budget(), Budget()
        self.used: dict[int, ThreadCpu] = {}  # by each thread until the last look
        self.seen: dict[int, tuple[Any, float]] = {}  # of each thread its task, and since when it is known
        self.chance = Random()  # the user's program may have seeded the common one
        self.looked = time()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dasklab-stacks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        asleep = times_asleep()
        while not self._stopping.wait(INTERVAL_S):
            asleep, before = times_asleep(), asleep
            try:
                self.look(waited=asleep - before > 1)
            except Exception as error:  # noqa: BLE001 - a recorder must not disturb what it records
                for watched in list(self.watched.values()):
                    watched.store.failures[f"sample_stacks: {type(error).__name__}()"] += 1

    def look(self, waited: bool = False) -> None:
        """Look around once, and sample what is late or waits.

        Args:
            waited: whether this thread had to wait for the interpreter.
        """
        now, before = time(), self.used
        seconds, self.looked = now - self.looked, now
        for watched in list(self.watched.values()) if waited else ():
            if watched.interpreter is not None:
                watched.interpreter.add(seconds)
        numbers = self._threads()
        use = {ident: ThreadCpu.of(number) for ident, number in numbers.items()}
        self.used = {ident: used for ident, used in use.items() if used.is_known}
        spent = {ident: used.since(before[ident]) for ident, used in self.used.items() if ident in before}
        late_s = seconds - INTERVAL_S
        own = spent.pop(threading.get_ident(), None)
        if late_s > HELD_UP_S:
            if own is not None and own.times > late_s / AWAKE_S:
                self._sample_holder(now, late_s, spent)
        elif not self._sample_loop(now):
            self._sample_task(now, seconds, spent)

    def _threads(self) -> dict[int, int]:
        """Return the system's number of each thread that is looked at, and of this one."""
        all_watched = list(self.watched.values())
        pools = [thread for watched in all_watched for thread in watched.pool()]
        loops = [watch.thread for watched in all_watched if (watch := watch_of(watched.loop)) is not None]
        threads = [*pools, *filter(None, loops), threading.current_thread()]
        return {t.ident: t.native_id for t in threads if t.ident and t.native_id}

    def _sample_holder(self, now: float, late_s: float, spent: Mapping[int, ThreadCpu]) -> None:
        """Sample the thread that kept the interpreter: the only one that could run meanwhile."""
        running = [ident for ident, use in spent.items() if use.ran_s + use.waited_s > late_s / 2]
        if len(running) != 1 or spent[running[0]].ran_s < HELD_S or not self.loops.remains:
            return
        holder = running[0]
        self.loops.taken.append(now)
        for watched in list(self.watched.values()):
            key, watch = watched.tasks.get(holder), watch_of(watched.loop)
            is_loop = watch is not None and watch.thread is not None and watch.thread.ident == holder
            if key is not None or is_loop:
                self._add(watched, holder, now, late_s, "held", "" if key is None else str(key))

    def _sample_loop(self, now: float) -> bool:
        """Sample event loops that are late; return whether any was."""
        late = [
            (watched, watch.thread.ident or 0)
            for watched in list(self.watched.values())
            if (watch := watch_of(watched.loop)) is not None
            and watch.thread is not None
            and is_late(watch, now)
        ]
        seconds = self.loops.interval_s(now) if late else 0.0
        if seconds:
            self.loops.taken.append(now)
            for watched, ident in late:
                self._add(watched, ident, now, seconds, "blocked", "")
        return bool(seconds)

    def _sample_task(self, now: float, seconds: float, spent: Mapping[int, ThreadCpu]) -> None:
        """Sample one task of those that wait, at random: threads may take turns as regular as these looks."""
        running = {
            ident: (watched, key)
            for watched in list(self.watched.values())
            for ident, key in list(watched.tasks.items())
        }
        self.seen = {
            ident: self.seen[ident] if self.seen.get(ident, (None, 0.0))[0] == key else (key, now)
            for ident, (_, key) in running.items()
        }
        waiting = [
            ident
            for ident in running
            if now - self.seen[ident][1] > LEAST_TASK_S
            and ident in spent
            and spent[ident].ran_s + spent[ident].waited_s < IDLE * seconds
        ]
        if waiting and (stands_for_s := self.tasks.interval_s(now)):
            self.tasks.taken.append(now)
            ident = self.chance.choice(waiting)
            watched, key = running[ident]
            self._add(watched, ident, now, stands_for_s, "waiting", str(key))

    def _add(
        self, watched: WatchedProcess, ident: int, now: float, seconds: float, reason: str, key: str
    ) -> None:
        frames = list(own_frames(sys._current_frames().get(ident)))
        if frames:
            activity, texts = activity_of(frames, reason == "waiting"), stack_texts(frames)
            log = watched.store.logs["stacks"]
            log.add(now, seconds, reason, key, *activity, json.dumps(texts))


def is_late(watch: LoopWatch, now: float) -> bool:
    return watch.running_since is not None and now - watch.running_since > LATE_S


def watch_stacks(watched: WatchedProcess) -> Undo:
    """Sample while a loop is late or a task waits; return how to end that.

    All recorders of a process share one thread, however often their modules were unpickled.
    """
    return share("_dasklab_stacks", id(watched.store), watched, lambda table: StackSampler(table).stop)


def own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Return the frames of a callback or of a task, the innermost first, without those that called it."""
    for _ in range(MAX_DEPTH):
        if frame is None or _is_caller(frame):
            return
        yield frame
        frame = frame.f_back


def _is_caller(frame: FrameType) -> bool:
    module, name = _module(frame), frame.f_code.co_name
    if module == "distributed.worker":
        return name.startswith(("_run_task", "apply_function"))
    return module == "asyncio.base_events" and name == "_run_once"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def qualified_name(frame: FrameType) -> str:
    return str(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))


def _file(frame: FrameType) -> str:
    """Return the file of a frame's code; of code that came by value the name of its module as one."""
    path = frame.f_code.co_filename
    return path if path != BY_VALUE else f"{_module(frame).replace('.', '/')}.py"


def stack_texts(frames: Sequence[FrameType]) -> list[str]:
    """Return the innermost frames as Dask's profile names them, the outermost of these first."""
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(IMPORTING)]
    texts = [
        f"{qualified_name(frame)} ({_file(frame)[-MAX_FRAME_TEXT:]}:{frame.f_lineno})"
        for frame in own[:MAX_FRAMES]
    ]
    return texts[::-1]


def activity_of(frames: Sequence[FrameType], waits: bool = False) -> Activity:
    """Return what a stack shows.

    Args:
        frames: the innermost first.
        waits: whether its thread waits; only then it may wait for a lock.
    """
    if waits and (lock := _lock(frames)) is not None:
        return Activity("lock", lock)
    imports = [frame for frame in frames if _is_import(frame)]
    if imports:
        name = imports[-1].f_locals.get("name")
        return Activity("import", name.partition(".")[0] if type(name) is str else "")
    if any(frame.f_code.co_name in ("sizeof", "safe_sizeof", "__sizeof__") for frame in frames):
        return Activity("sizeof")
    if any(_is_spilling(frame) for frame in frames):
        return Activity("spill")
    return Activity(next(filter(None, map(_conversion, frames)), ""))


def _is_import(frame: FrameType) -> bool:
    return frame.f_code.co_name == "_find_and_load" and frame.f_code.co_filename.startswith(IMPORTING)


def _is_spilling(frame: FrameType) -> bool:
    """Return whether a frame writes a result to disk, reads it back, or deletes it there."""
    is_dasks = _module(frame) == "distributed.spill"
    return is_dasks and type(frame.f_locals.get("self")).__name__ == DISK_OF_RESULTS


def _lock(frames: Sequence[FrameType]) -> str | None:
    """Return the class of the lock that a thread waits for; empty if it is unknown, None if it is none."""
    innermost = frames[0]
    inside = frames[1:2] if _module(innermost) == "threading" and len(frames) > 1 else []
    for frame in (innermost, *inside):
        if frame.f_code.co_name in ACQUIRES and _module(frame).partition(".")[0] not in (
            "contextlib",
            "distributed",
        ):
            return qualified_name(frame).rpartition(".")[0].rpartition(".")[2]
    return "" if _enters_block(innermost) else None


def _enters_block(frame: FrameType) -> bool:
    """Return whether a frame is in the first step of a ``with`` statement, in code that is not Python."""
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and opname[code[frame.f_lasti]] in ENTERS_BLOCK


def _conversion(frame: FrameType) -> str:
    """Return which way a frame converts data; empty if it does not."""
    module, name = _module(frame), frame.f_code.co_name.lower()
    if module.partition(".")[0] not in SERIALISERS:
        return ""
    is_pickle = module.startswith(PICKLES)
    if "loads" in name or "deserialize" in name:
        return "unpickle" if is_pickle else "deserialise"
    if "dumps" in name or "serialize" in name:
        return "pickle" if is_pickle else "serialise"
    return ""
