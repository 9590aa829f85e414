"""Advice in words: what would make a recorded computation faster, if anything would.

A rule (table ``RULES``) looks at the whole explanation and returns at most one sentence, with the seconds of
the run that it is about. Advice that is about less than ``LEAST_SHARE`` of the run, or about less than
``LEAST_S``, is not given. The three sentences about most seconds are shown. Every rule states its own
threshold and links to the page of Dask's documentation that says how to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.causes import (
    BUILD,
    COLLECTION,
    COMPUTE,
    CPU,
    DISK,
    GATHER,
    GIL,
    LAG,
    LATE,
    LINK,
    LOCK,
    LOGIC,
    LOOP,
    MESSAGE,
    NOTHING,
    PAUSED,
    PLACEMENT,
    PLAN,
    QUEUE,
    SCATTER,
    TIMER,
    UPLOAD,
    Bottleneck,
    Cause,
)
from dasklab.breakdown.facts import Facts
from dasklab.breakdown.run import Run
from dasklab.breakdown.summary import Summary
from dasklab.terminal import counted

LEAST_SHARE, LEAST_S = 0.1, 0.1
MOST = 3  # sentences
BIG_GRAPH_BYTES = 10_000_000  # Dask warns of larger ones, too
SMALL_TASK_S, LEAST_SMALL = 0.01, 100
LONG_SHARE, IDLE_SHARE = 0.3, 0.5
SKEW = 2.0  # times the mean
MANY_RETRANSMITTED = 100  # segments
MANY_OBJECTS = 100
DASK, DISTRIBUTED = "https://docs.dask.org/en/stable/", "https://distributed.dask.org/en/stable/"


@dataclass(frozen=True)
class Case:
    """What rules look at: one run, its summary, and what else its record knows."""

    run: Run
    summary: Summary
    facts: Facts

    def path_s(self, *causes: Cause) -> float:
        """Seconds of the critical path with these causes."""
        return sum(self.summary.path_by_cause.get(cause, 0.0) for cause in causes)

    def thread_s(self, *causes: Cause) -> float:
        """Seconds of the makespan, as shares of all threads' time, with these causes."""
        return sum(self.summary.by_cause.get(cause, 0.0) for cause in causes)

    def bottleneck(self, bottleneck: Bottleneck) -> tuple[float, str]:
        """Seconds of the critical path for which a bottleneck is responsible, and where most of them are."""
        ranked = {row[0]: (row[2], row[1]) for row in self.summary.ranked()}
        return ranked.get(bottleneck, (0.0, ""))


@dataclass(frozen=True)
class Advice:
    """A sentence about some seconds of the run, and where to read more."""

    text: str
    seconds: float
    link: str

    def __str__(self) -> str:
        return f"{self.text} {self.link}"


@dataclass(frozen=True)
class Rule:
    """A rule: what it finds, from which threshold on, and the page that says what to do."""

    title: str
    threshold: str
    page: str
    sentence: Callable[[Case], tuple[float, str] | None]


RULES: list[Rule] = []


def rule(title: str, threshold: str, page: str) -> Callable[..., Callable[[Case], tuple[float, str] | None]]:
    """Register a function as a rule: it returns the seconds and the sentence, or None."""

    def register(
        function: Callable[[Case], tuple[float, str] | None],
    ) -> Callable[[Case], tuple[float, str] | None]:
        RULES.append(Rule(title, threshold, page, function))
        return function

    return register


def advice(run: Run, summary: Summary, facts: Facts) -> Sequence[Advice]:
    """Return at most three pieces of advice, those about most seconds first; none if nothing is worth doing."""
    case = Case(run, summary, facts)
    least = max(LEAST_S, LEAST_SHARE * summary.makespan_s)
    answers = [(rule, rule.sentence(case)) for rule in RULES]
    pieces = [Advice(text[1], text[0], rule.page) for rule, text in answers if text and text[0] >= least]
    return sorted(pieces, key=lambda piece: -piece.seconds)[:MOST]


@rule("large graphs", "10 MB in all graphs, or 1,000 tasks", f"{DASK}best-practices.html#load-data-with-dask")
def _graphs(case: Case) -> tuple[float, str] | None:
    seconds = case.path_s(BUILD, UPLOAD, PLAN)
    nbytes, tasks = (sum(getattr(graph, name) for graph in case.run.graphs) for name in ("nbytes", "tasks"))
    if nbytes >= BIG_GRAPH_BYTES:
        return seconds, (
            f"Graphs of {nbytes / 1e6:.0f} MB took {seconds:.1f} s to build, send and prepare: load data in"
            " tasks, or scatter it once, instead of passing it as an argument."
        )
    if tasks >= 1000:
        return seconds, (
            f"Graphs of {tasks} tasks took {seconds:.1f} s to build, send and prepare: use larger chunks or"
            " partitions."
        )
    return None


@rule("small tasks", "100 tasks of less than 10 ms (median)", f"{DASK}best-practices.html")
def _small_tasks(case: Case) -> tuple[float, str] | None:
    tasks = case.run.tasks
    if len(tasks) < LEAST_SMALL:
        return None
    median = float(np.median(tasks.stop - tasks.start))
    seconds = case.path_s(LOGIC, LOOP, TIMER, MESSAGE, LAG)
    if median > SMALL_TASK_S:
        return None
    return seconds, (
        f"{len(tasks)} tasks took {1e3 * median:.1f} ms each (median), and Dask's own work between them"
        f" {seconds:.1f} s of the critical path: do more in each task."
    )


@rule("one long task", "30 % of the run, half of the other threads idle", f"{DASK}array-chunks.html")
def _long_task(case: Case) -> tuple[float, str] | None:
    run = case.run
    threads = sum(run.threads.values())
    if not len(run.tasks) or threads < 2:
        return None
    seconds = run.tasks.stop - run.tasks.start
    row = int(seconds.argmax())
    longest = float(seconds[row])
    idle = case.thread_s(NOTHING) * threads
    if longest < LONG_SHARE * run.makespan or idle < IDLE_SHARE * longest * (threads - 1):
        return None
    name, worker = run.prefixes[run.tasks.key[row]], run.places.nodes[run.tasks.worker[row]]
    return longest, (
        f"One task, {name}, took {longest:.1f} s on {worker} while other threads had nothing to do: split it."
    )


@rule("skew", "one worker has twice the mean's work", f"{DISTRIBUTED}locality.html")
def _skew(case: Case) -> tuple[float, str] | None:
    run = case.run
    if len(run.threads) < 2 or not len(run.tasks):
        return None
    work = np.bincount(run.tasks.worker, run.tasks.stop - run.tasks.start, max(run.workers) + 1)[2:]
    most = int(work.argmax())
    if work[most] < SKEW * work.mean() or _long_task(case):
        return None
    seconds = case.thread_s(NOTHING, QUEUE)
    return seconds, (
        f"{list(run.threads)[most]} did {100 * work[most] / work.sum():.0f} % of the work of"
        f" {len(run.threads)} workers: spread the data, or do not restrict tasks to workers."
    )


@rule("locks", "10 % of the threads' time", f"{DASK}futures.html#locks")
def _locks(case: Case) -> tuple[float, str] | None:
    seconds = case.thread_s(LOCK)
    if not case.facts.locks:
        return None
    use = case.facts.locks[0]
    holder = f", which {use.holder} holds," if use.holder else ""
    return seconds, (
        f"Tasks waited {use.waited_s:.1f} s for the {use.kind} '{use.name}'{holder} while they kept their"
        " threads: hold it for a shorter time, or do without it."
    )


@rule("spilling", "10 % of the critical path", f"{DISTRIBUTED}worker-memory.html")
def _spilling(case: Case) -> tuple[float, str] | None:
    seconds = max(case.path_s(DISK), case.thread_s(DISK))
    prefix = f" {case.facts.largest} keeps most." if case.facts.largest else ""
    return seconds, (
        f"Writing and reading spilled data took {seconds:.1f} s: use smaller chunks, more workers or more"
        f" memory.{prefix}"
    )


@rule("paused workers", "10 % of the threads' time", f"{DISTRIBUTED}worker-memory.html")
def _paused(case: Case) -> tuple[float, str] | None:
    seconds = case.thread_s(PAUSED)
    prefix = f" {case.facts.largest} keeps most." if case.facts.largest else ""
    return seconds, (
        f"Workers were paused for {seconds:.1f} s because their memory was nearly full: use smaller chunks or"
        f" more memory.{prefix}"
    )


@rule("queuing is off", "as for memory", f"{DISTRIBUTED}scheduling-policies.html#queuing")
def _queuing(case: Case) -> tuple[float, str] | None:
    if case.facts.setting("scheduler.worker-saturation") not in ("inf", "Infinity"):
        return None
    seconds = case.thread_s(DISK, PAUSED)
    return seconds, (
        f"Workers had too much in memory for {seconds:.1f} s, and worker-saturation is inf: set it to 1.1,"
        " so that the scheduler holds tasks back."
    )


@rule("too few CPUs", "10 % of the critical path", f"{DASK}array-best-practices.html")
def _cpu(case: Case) -> tuple[float, str] | None:
    seconds, place = case.bottleneck(CPU)
    return seconds, (
        f"Threads of {place} could run but waited {seconds:.1f} s for a CPU: use fewer threads, or end other"
        " programs there. Libraries with threads of their own need OMP_NUM_THREADS=1."
    )


@rule("interpreter", "10 % of the critical path", f"{DASK}best-practices.html")
def _interpreter(case: Case) -> tuple[float, str] | None:
    seconds, place = case.bottleneck(GIL)
    return seconds, (
        f"Tasks on {place} waited {seconds:.1f} s for Python's interpreter (GIL): use more processes with"
        " fewer threads each."
    )


@rule("garbage collection", "10 % of the critical path", f"{DISTRIBUTED}worker-memory.html")
def _garbage(case: Case) -> tuple[float, str] | None:
    seconds, place = case.bottleneck(COLLECTION)
    return seconds, (
        f"Python collected garbage for {seconds:.1f} s on {place}: tasks make many small objects; use arrays."
    )


@rule("results through the scheduler", "10 % of the critical path", f"{DISTRIBUTED}manage-computation.html")
def _gather(case: Case) -> tuple[float, str] | None:
    seconds = case.path_s(GATHER)
    return seconds, (
        f"Moving results to the client, through the scheduler, took {seconds:.1f} s: reduce them first, or let"
        " tasks write them to storage."
    )


@rule("scatter", "10 % of the critical path", f"{DISTRIBUTED}locality.html")
def _scatter(case: Case) -> tuple[float, str] | None:
    seconds = case.path_s(SCATTER)
    if case.facts.scattered >= MANY_OBJECTS:
        return seconds, (
            f"Scattering {counted(case.facts.scattered, 'object')} took {seconds:.1f} s: scatter a few large"
            " ones."
        )
    return seconds, f"Scattering data took {seconds:.1f} s: let tasks load it."


@rule("avoidable transfers", "10 % of the critical path", f"{DISTRIBUTED}locality.html")
def _placement(case: Case) -> tuple[float, str] | None:
    seconds, place = case.bottleneck(PLACEMENT)
    return seconds, (
        f"Tasks waited {seconds:.1f} s ({place}) for data that another worker had already: let the scheduler"
        " choose their worker, or keep together what is used together."
    )


@rule("slow link", "10 % of the critical path", f"{DISTRIBUTED}communications.html")
def _link(case: Case) -> tuple[float, str] | None:
    seconds, place = case.bottleneck(LINK)
    lost = case.facts.retransmitted
    most = max(lost, key=lost.__getitem__, default="")
    also = (
        f" {most} sent {lost[most]:.0f} segments again." if most and lost[most] >= MANY_RETRANSMITTED else ""
    )
    return seconds, f"The network took {seconds:.1f} s, most of it at {place}: check that link.{also}"


@rule("wrong network interface", "a faster one is up; 10 % on the network", f"{DASK}deploying-hpc.html")
def _interface(case: Case) -> tuple[float, str] | None:
    seconds, _ = case.bottleneck(LINK)
    wrong = case.facts.slower_interface
    if wrong is None:
        return None
    return seconds, (
        f"Data took {seconds:.1f} s through {wrong.used} of {wrong.node}, although {wrong.faster} is faster:"
        f" start workers and scheduler with --interface {wrong.faster}."
    )


@rule("blocked event loops", "10 % of the critical path", f"{DASK}best-practices.html")
def _loop(case: Case) -> tuple[float, str] | None:
    seconds, place = case.bottleneck(LATE)
    prefix = case.facts.busiest_during.get(place, "")
    what = f" while it ran {prefix}" if prefix else ""
    return seconds, (
        f"The event loop of {place} was held up for {seconds:.1f} s{what}: something there keeps the"
        " interpreter or blocks the loop."
    )
