"""The registry of causes: what a second of a worker thread can be spent on.

Every second of every thread has exactly one cause. This module owns all that is said about a cause; tables,
pictures, traces, JSON, the documentation and the tests iterate over ``CAUSES``. To add one, register it here
and emit it in the module that finds its evidence.

Each cause speaks for one bottleneck: what a reader would go and look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


class Kind(Enum):
    """Whether a thread does useful work, waits for something that it needs, or has nothing to do."""

    WORK = "work"
    WAITING = "waiting"
    IDLE = "idle"


class Group(Enum):
    """The part of the cluster that a cause is about."""

    COMPUTATION = "computation"
    DATA = "data transfer"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    CLIENT = "client"
    IDLE = "idle"


@dataclass(frozen=True)
class Part:
    """One of the five parts that the time of a run is shown in, with its colours on light and on dark pages.

    More than a dozen colours look alike, so every picture has these five, and causes are shades of their
    part. Tests check that any two parts differ for people with any kind of colour vision.
    """

    name: str
    title: str
    groups: tuple[Group, ...]
    light: str
    dark: str


PARTS = (
    Part("compute", "computing and worker lag", (Group.COMPUTATION, Group.WORKER), "#384dc9", "#5473ca"),
    Part("data", "moving data", (Group.DATA,), "#b76339", "#eb9c30"),
    Part("scheduler", "waiting for the scheduler", (Group.SCHEDULER,), "#283055", "#c5a9fe"),
    Part("client", "waiting for the client", (Group.CLIENT,), "#00a589", "#3be5cd"),
    Part("idle", "idle", (Group.IDLE,), "#5f5f5d", "#7d7d7b"),
)
SECOND_SHADE, LAST_SHADE = 0.2, 0.7
"""Shares of white in the shades of a part: those of the second and of the last cause."""


@dataclass(frozen=True)
class Bottleneck:
    """Something to look at: ``name`` in files, ``title`` in sentences."""

    name: str
    title: str


SLOW = Bottleneck("slow worker", "computing that took longer than the same tasks elsewhere")
LINK = Bottleneck("link", "the wire")
SCHEDULING = Bottleneck("scheduler", "the scheduler")
WORKER_LAG = Bottleneck("worker lag", "worker lag")
PLACEMENT = Bottleneck("placement", "data that a better placement would not have moved")
BUSY_PEERS = Bottleneck("busy peers", "handing over data: busy peers, serialising, receiving")
COMPUTING = Bottleneck("computing", "computing")
USER_CODE = Bottleneck("client code", "the client's own code")
GRAPHS = Bottleneck("graphs", "building, sending and preparing graphs")
CLIENT_DATA = Bottleneck("client data", "data between the client and the workers (packed, moved, unpacked)")
ANSWERS = Bottleneck("answers", "calls that waited for the cluster, but not for the client's tasks")
UNMETERED_TASKS = Bottleneck(
    "unmetered tasks", "running tasks (it was not recorded whether they computed or waited)"
)
BETWEEN_COMPUTATIONS = Bottleneck("between computations", "between computations")
RESULTS = Bottleneck("results", "results on their way to the client's code")
LOCKS = Bottleneck("locks", "locks, semaphores, queues or events (waited for, or held while others waited)")
NESTED_TASKS = Bottleneck("nested tasks", "tasks that wait for tasks of their own")
OUTSIDE = Bottleneck("outside", "tasks that wait for something outside of Dask")
UNKNOWN_WAIT = Bottleneck(
    "cpu or outside",
    "tasks that wait for a CPU or for something outside of Dask",
)
GIL = Bottleneck("interpreter", "waiting for the interpreter (GIL)")
CPU = Bottleneck("cpu", "waiting for a CPU")
COLLECTION = Bottleneck("garbage collection", "garbage collection")
LOST_RESULTS = Bottleneck("lost results", "computing again what was lost")
ACTORS = Bottleneck("actors", "actors")
MEASURED_RESULTS = Bottleneck("measured results", "measuring the size of results (`__sizeof__`)")
MEMORY = Bottleneck("memory", "workers that are paused because of memory")
DISK_USE = Bottleneck("disk", "disk")
MISSING_WORKERS = Bottleneck("no worker", "waiting for workers to start")
IDLE = Bottleneck("idle", "idle")
NOT_DIVIDED = Bottleneck("undivided", "that could not be divided further")
BOTTLENECKS = [value for value in vars().values() if isinstance(value, Bottleneck)]


@dataclass(frozen=True)
class Cause:
    """A reason for which time passes. ``code`` is its position in ``CAUSES``."""

    name: str
    code: int
    group: Group
    kind: Kind
    bottleneck: Bottleneck
    title: str
    explanation: str

    @property
    def part(self) -> Part:
        """The part of the time that it is shown in."""
        return next(part for part in PARTS if self.group in part.groups)

    @property
    def colour(self) -> str:
        """A shade of its part's colour on light pages; the first cause of a part has the colour itself."""
        alike = [cause for cause in CAUSES if cause.part is self.part]
        # From the last one down: of two causes, the second has the last shade
        shades = [0.0, *np.linspace(LAST_SHADE, SECOND_SHADE, len(alike) - 1)[::-1]]
        white = shades[alike.index(self)]
        levels = (int(self.part.light[at : at + 2], 16) for at in (1, 3, 5))
        return "#" + "".join(f"{round(level + (255 - level) * white):02x}" for level in levels)


CAUSES: list[Cause] = []


def _register(
    name: str, group: Group, kind: Kind, bottleneck: Bottleneck, title: str, explanation: str
) -> Cause:
    cause = Cause(name, len(CAUSES), group, kind, bottleneck, title, explanation)
    CAUSES.append(cause)
    return cause


COMPUTE = _register(
    "compute", Group.COMPUTATION, Kind.WORK, COMPUTING,
    "computing",
    "The thread runs a task, or the task waits for threads of its own that compute.",
)  # fmt: skip
SERIALISE = _register(
    "serialise", Group.DATA, Kind.WAITING, BUSY_PEERS,
    "serialising and deserialising data",
    "Either end of a transfer that the next task waits for converts or compresses the data; or the task "
    "waits for its worker's event loop, which does so for another transfer.",
)  # fmt: skip
PEER = _register(
    "peer", Group.DATA, Kind.WAITING, BUSY_PEERS,
    "waiting for data: the peer was busy",
    "The worker that has the data had not handled the request yet, went on with other work after it wrote "
    "the data, or answered that it was busy.",
)  # fmt: skip
SHUFFLE = _register(
    "shuffle", Group.DATA, Kind.WAITING, BUSY_PEERS,
    "waiting for data: inside a shuffle",
    "A task of a peer-to-peer shuffle or rechunk ran without using a CPU: it exchanges its data itself, and "
    "waits for event loops, peers and disks.",
)  # fmt: skip
WIRE = _register(
    "wire", Group.DATA, Kind.WAITING, LINK,
    "waiting for data: on the wire",
    "Neither end of the transfer was busy. Kernel and wake-up latency are included.",
)  # fmt: skip
RECEIVED = _register(
    "received", Group.DATA, Kind.WAITING, BUSY_PEERS,
    "waiting for data: being received",
    "The receiver's event loop was busy without a break until it had the data, which may have waited there.",
)  # fmt: skip
DISK = _register(
    "disk", Group.WORKER, Kind.WAITING, DISK_USE,
    "disk",
    "Dask reported reading spilled data back, or spilling, for this task (only if it took more than 5 ms, on "
    "a worker that spilled).",
)  # fmt: skip
LAG = _register(
    "lag", Group.WORKER, Kind.WAITING, WORKER_LAG,
    "had work, did not run it (worker lag)",
    "The worker had the task and all its data, or its event loop was busy when the task arrived; or a task "
    "had ended and its end was not reported yet.",
)  # fmt: skip
LOGIC = _register(
    "logic", Group.SCHEDULER, Kind.WAITING, SCHEDULING,
    "waiting for the scheduler: its logic",
    "Between the report of one task and the choice of a worker for the next.",
)  # fmt: skip
LOOP = _register(
    "loop", Group.SCHEDULER, Kind.WAITING, SCHEDULING,
    "waiting for the scheduler: its event loop",
    "A message waited for the scheduler's event loop, to be sent or to be handled.",
)  # fmt: skip
TIMER = _register(
    "timer", Group.SCHEDULER, Kind.WAITING, SCHEDULING,
    "waiting for the scheduler: Dask's send timers",
    "A batch of messages was held back because the previous one had just left (2 ms on workers, 5 ms on the "
    "scheduler).",
)  # fmt: skip
MESSAGE = _register(
    "message", Group.SCHEDULER, Kind.WAITING, LINK,
    "waiting for the scheduler: messages on the wire",
    "A message between scheduler and worker was under way and neither end was busy.",
)  # fmt: skip
QUEUE = _register(
    "queue", Group.IDLE, Kind.IDLE, IDLE,
    "idle while others queue",
    "The thread had no task, but another worker had more tasks than threads, or the scheduler kept "
    "some back.",
)  # fmt: skip
NOTHING = _register(
    "nothing", Group.IDLE, Kind.IDLE, IDLE,
    "nothing to do",
    "No further task could run at that time: the graph had no more parallelism.",
)  # fmt: skip
USER = _register(
    "user-code", Group.CLIENT, Kind.IDLE, USER_CODE,
    "client: its own code",
    "The scheduler knew no unfinished task, and the client was outside of Dask: code before, between and "
    "after computations.",
)  # fmt: skip
BUILD = _register(
    "build", Group.CLIENT, Kind.IDLE, GRAPHS,
    "client: building and packing graphs",
    "The client had called Dask and had not sent the graph yet.",
)  # fmt: skip
UPLOAD = _register(
    "upload", Group.CLIENT, Kind.IDLE, GRAPHS,
    "client: graphs on their way to the scheduler",
    "The client had sent a graph and the scheduler did not have it yet.",
)  # fmt: skip
PLAN = _register(
    "plan", Group.SCHEDULER, Kind.IDLE, GRAPHS,
    "scheduler: preparing graphs",
    "The scheduler unpacked a graph, made single tasks of it, ordered them and made their states.",
)  # fmt: skip
SCATTER = _register(
    "scatter", Group.CLIENT, Kind.IDLE, CLIENT_DATA,
    "client: scatter",
    "Nothing was left to compute while the client sent data to workers.",
)  # fmt: skip
GATHER = _register(
    "gather", Group.CLIENT, Kind.IDLE, CLIENT_DATA,
    "client: gather",
    "Nothing was left to compute while results moved to the client.",
)  # fmt: skip
RESULT = _register(
    "result", Group.CLIENT, Kind.IDLE, RESULTS,
    "client: waiting to learn of its results",
    "All tasks that a call of the client waited for had ended, and it had not returned yet.",
)  # fmt: skip
LOCK = _register(
    "lock", Group.COMPUTATION, Kind.WAITING, LOCKS,
    "waiting for a lock, semaphore, queue or event",
    "A task kept its thread while it waited for a primitive of Dask.",
)  # fmt: skip
HOLDING = _register(
    "holding", Group.COMPUTATION, Kind.WORK, LOCKS,
    "holding a lock that others wait for",
    "A task ran while it held a lock or semaphore that another task waited for.",
)  # fmt: skip
NESTED = _register(
    "nested", Group.COMPUTATION, Kind.WAITING, NESTED_TASKS,
    "tasks waiting for tasks of their own",
    "A task had submitted tasks itself and waited for their results.",
)  # fmt: skip
EXTERNAL = _register(
    "external", Group.COMPUTATION, Kind.WAITING, OUTSIDE,
    "tasks waiting for something outside of Dask",
    "A task ran without using a CPU: input and output, sleeping, another service. Measured per kind of task.",
)  # fmt: skip
INTERPRETER = _register(
    "interpreter", Group.COMPUTATION, Kind.WAITING, GIL,
    "waiting for the interpreter (GIL)",
    "A task ran without using a CPU while other tasks of its process used or waited for one, or while the "
    "event loop of its process was kept from running although it had a CPU.",
)  # fmt: skip
STARVED = _register(
    "starved", Group.WORKER, Kind.WAITING, CPU,
    "waiting for a CPU",
    "A thread could have run, but other threads or processes had all CPUs (from the kernel's figures).",
)  # fmt: skip
GARBAGE = _register(
    "garbage", Group.WORKER, Kind.WAITING, COLLECTION,
    "garbage collection",
    "Python collected garbage for more than 1 ms at a time.",
)  # fmt: skip
AGAIN = _register(
    "again", Group.COMPUTATION, Kind.WORK, LOST_RESULTS,
    "computing again what was lost",
    "The result had been computed before, and was lost with its worker.",
)  # fmt: skip
ACTOR = _register(
    "actor", Group.COMPUTATION, Kind.WORK, ACTORS,
    "actors at work",
    "The client waited for a method of an actor, which runs outside of the worker's threads.",
)  # fmt: skip
PAUSED = _register(
    "paused", Group.WORKER, Kind.WAITING, MEMORY,
    "worker paused (memory)",
    "The worker started no task, because its memory was nearly full.",
)  # fmt: skip
EXTERNAL_OR_STARVED = _register(
    "external-or-starved", Group.COMPUTATION, Kind.WAITING, UNKNOWN_WAIT,
    "tasks waiting for a CPU or for something outside of Dask",
    "A task ran without using a CPU. The system does not say whether it waited for one (macOS, Windows), or "
    "it did for a part of that time, and the figures are too coarse to tell.",
)  # fmt: skip
UNDIVIDED = _register(
    "undivided", Group.IDLE, Kind.IDLE, NOT_DIVIDED,
    "could not be divided further",
    "No evidence says what this time was spent on, or pieces of evidence contradict each other.",
)  # fmt: skip
BETWEEN = _register(
    "between", Group.CLIENT, Kind.IDLE, BETWEEN_COMPUTATIONS,
    "between computations",
    "The scheduler knew no unfinished task, and the program that uses the cluster was not recorded: whether "
    "it ran code of its own or moved data is unknown.",
)  # fmt: skip
NO_WORKER = _register(
    "no-worker", Group.IDLE, Kind.WAITING, MISSING_WORKERS,
    "without a worker",
    "The cluster had no worker yet, or none any more, or the thread's worker had died or was being started "
    "again.",
)  # fmt: skip
ANSWER = _register(
    "answer", Group.CLIENT, Kind.IDLE, ANSWERS,
    "client: waiting, but not for its own tasks",
    "The client waited in a call while none of its tasks was unfinished, such as client.run, client.restart, "
    "client.wait_for_workers, or a wait for tasks of another client.",
)  # fmt: skip
UNMETERED = _register(
    "unmetered", Group.COMPUTATION, Kind.WORK, UNMETERED_TASKS,
    "running tasks (computing or waiting)",
    "A task ran, and nothing shows whether it used a CPU: too little is known of its process's use of CPUs.",
)  # fmt: skip
MEASURE = _register(
    "measure", Group.WORKER, Kind.WAITING, MEASURED_RESULTS,
    "measuring the size of results",
    "A task had its result, and its thread asked the result for its size (`__sizeof__`), as Dask does.",
)  # fmt: skip
