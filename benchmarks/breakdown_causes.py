"""Does the time breakdown name the cause of a slowdown that a benchmark has made?

    python benchmarks/breakdown_causes.py --out /tmp/causes [--only link busy_worker] [--repeat 4]

A case is a pair of trials on fresh clusters in network namespaces, without and with a fault: either a preload
makes a process slow, or the network and the machine are disturbed from outside. The first cause
that `dasklab explain OLD NEW` names is compared with the truth. The script prints a line per case and how
many were right. It keeps the trials in --out and does not repeat those that are there, so the same command
continues an interrupted run. ``steal_pct`` is the share of the CPUs that other guests of this machine's host
took. Needs root, iproute2 and nftables.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--out": (Path, "folder of the trials"),
            "--only": ([str], "these cases"),
            "--repeat": (4, "pairs of each case"),
            "--first": (0, "number of the first pair"),
            "--repeats": (2, "repeats of a trial"),
        },
        smallest="--out {folder} --only waiting_worker --repeat 1 --repeats 1",
        needs=("root", "ip", "nft"),
    )

from dasklab.breakdown.model.causes import (
    CPU,
    GIL,
    LINK,
    OUTSIDE,
    PLACEMENT,
    SCHEDULING,
    SLOW,
    WORKER_LAG,
    Bottleneck,
)
from dasklab.breakdown.show.explain import explain
from dasklab.comparison.difference import Difference
from dasklab.model.files import RECORD_FOLDER
from dasklab.results.run import open_trial

from benchmarks.namespace_cluster import Cluster, cluster, keep

SLOW_WORKER = """
import time
from dask._task_spec import Task
call = Task.__call__
def slow(self, *args, **kwargs):
    begin = time.perf_counter()
    result = call(self, *args, **kwargs)
    end = {more} * (time.perf_counter() - begin) + {least}
    {spend}
    return result
def dask_setup(worker):
    Task.__call__ = slow
"""
COMPUTES = "end += time.thread_time()\n    while time.thread_time() < end: pass"
WAITS = "time.sleep(end)"
SLOW_SCHEDULER = """
import time
from distributed.diagnostics.plugin import SchedulerPlugin
class Slow(SchedulerPlugin):
    def transition(self, key, start, finish, *args, **kwargs):
        if finish in ("memory", "processing"):
            until = time.perf_counter() + {seconds}
            while time.perf_counter() < until:
                pass
async def dask_setup(scheduler):
    scheduler.add_plugin(Slow())
"""
HOLDS_GIL = """
import threading, time
def hold():
    number = 3 ** {power}
    while True:
        str(number)  # one call into C that keeps the GIL
        time.sleep({pause})
def dask_setup(worker):
    import sys
    sys.set_int_max_str_digits(0)
    threading.Thread(target=hold, daemon=True).start()
"""
RANDOM = """
import random
def dask_setup(scheduler):
    def anywhere(ts):
        workers = sorted(scheduler.running, key=lambda ws: ws.address)
        return random.choice(workers) if workers else None
    scheduler.decide_worker_non_rootish = anywhere
    scheduler.decide_worker_rootish_queuing_enabled = lambda: anywhere(None)
    scheduler.decide_worker_rootish_queuing_disabled = anywhere
"""
ARRAY = ("array_study", {"size": 2000, "chunk": 250})
TREE = ("tree_reduction", {"leaves": 96, "size_kb": 1500})
SLEEPS = ("parallel_tasks", {"tasks": 200, "task_ms": 30})
MERGE = ("merge", {"tasks": 600})


LOOP = "while True: pass"
Fault = Callable[[Cluster, str], AbstractContextManager[None]]


@contextmanager
def busy_loops(nodes: Cluster, place: str, number: int, pinned: bool) -> Iterator[None]:
    """Compute in so many processes outside the cluster; if pinned, on the CPU of the place."""
    cpus = os.sched_getaffinity(nodes.processes[place].pid if pinned else 0)
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(number)]
    for loop in loops:
        os.sched_setaffinity(loop.pid, cpus)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def suspended(nodes: Cluster, place: str, seconds: float) -> Iterator[None]:
    """Let a process run for 1 s, suspend it for so many seconds, and so on."""
    end, process = threading.Event(), nodes.processes[place]

    def alternate() -> None:
        while not end.wait(1.0):
            process.send_signal(signal.SIGSTOP)
            end.wait(seconds)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def lossy(nodes: Cluster, place: str, per_mille: int) -> Iterator[None]:
    """Lose that share of the packets that a node sends and receives."""
    rules = [
        "add table inet loss",
        *(
            f"add chain inet loss {hook} {{ type filter hook {hook} priority 0; }};"
            f" add rule inet loss {hook} numgen random mod 1000 < {per_mille} drop"
            for hook in ("input", "output")
        ),
    ]
    for rule in rules:
        nodes.run_in(place, "nft", rule)
    yield


def pin(nodes: Cluster, place: str) -> None:
    """Give a node the last CPU, and the others the rest."""
    *rest, last = sorted(os.sched_getaffinity(0))
    for node, process in nodes.processes.items():
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {last} if node == place else rest)


@dataclass(frozen=True)
class Case:
    """What is made slow, and where.

    Attributes:
        truth: the right answers.
        place: the node; "" where it is all of them.
        preload: a script that makes the place slow.
        fault: what disturbs the place from outside.
        alone: the place has a CPU of its own in both trials.
        caps: of nodes, in Mbit/s, in both trials; ``slower`` only in the second.
    """

    truth: tuple[Bottleneck, ...]
    work: tuple[str, dict[str, Any]]
    place: str = ""
    preload: str = ""
    fault: Fault | None = None
    alone: bool = False
    caps: dict[str, float] = field(default_factory=dict)
    slower: dict[str, float] = field(default_factory=dict)
    threads: int = 1

    @property
    def name(self) -> str:
        return " ".join([self.truth[0].name, self.place, "in", self.work[0]])


def _all(mbit: float) -> dict[str, float]:
    return {f"worker-{i}": mbit for i in (1, 2, 3)}


CASES: dict[str, Callable[[int], Case]] = {
    "link": lambda i: Case(
        (LINK,),
        (ARRAY, TREE)[i % 2],
        f"worker-{i % 3 + 1}",
        slower={f"worker-{i % 3 + 1}": (25, 40)[i // 2 % 2]},
    ),
    "worker": lambda i: Case(
        (SLOW,),
        (SLEEPS, ARRAY)[i % 2],
        f"worker-{i % 3 + 1}",
        SLOW_WORKER.format(more=(2, 20)[i % 2], least=(0, 0.02)[i % 2], spend=COMPUTES),
    ),
    "waiting_worker": lambda i: Case(
        (OUTSIDE,),
        (SLEEPS, ARRAY)[i % 2],
        f"worker-{i % 3 + 1}",
        SLOW_WORKER.format(more=(10, 20)[i % 2], least=(0, 0.02)[i % 2], spend=WAITS),
    ),
    "scheduler": lambda i: Case(
        (SCHEDULING,),
        (MERGE, ARRAY)[i % 2],
        "scheduler",
        SLOW_SCHEDULER.format(seconds=(0.003, 0.001)[i % 2]),
    ),
    "busy_worker": lambda i: Case(
        (WORKER_LAG, GIL),
        (SLEEPS, MERGE)[i % 2],
        f"worker-{i % 3 + 1}",
        HOLDS_GIL.format(power=(120_000, 180_000)[i // 2 % 2], pause=0.01),
        threads=2,
    ),
    "placement": lambda i: Case(
        (PLACEMENT,),
        ("tree_reduction", {"leaves": (64, 128)[i % 2], "size_kb": (1000, 500)[i % 2]}),
        preload=RANDOM,
        caps=_all((40, 25)[i // 2 % 2]),
    ),
    "busy_cpu": lambda i: Case(
        (CPU,),
        (ARRAY, MERGE)[i % 2],
        f"worker-{i % 3 + 1}",
        fault=partial(busy_loops, number=8, pinned=True),
        alone=True,
    ),
    "busy_node": lambda i: Case(
        (CPU,), (ARRAY, MERGE)[i % 2], fault=partial(busy_loops, number=(4, 8)[i // 2 % 2], pinned=False)
    ),
    "suspended_scheduler": lambda i: Case(
        (SCHEDULING,),
        (MERGE, ARRAY)[i % 2],
        "scheduler",
        fault=partial(suspended, seconds=(0.5, 0.3)[i // 2 % 2]),
    ),
    "scheduler_link": lambda i: Case(
        (LINK,), (ARRAY, MERGE)[i % 2], "scheduler", slower={"scheduler": (2, 1)[i // 2 % 2]}
    ),
    "loss": lambda i: Case(
        (LINK,),
        (ARRAY, TREE)[i % 2],
        f"worker-{i % 3 + 1}",
        fault=partial(lossy, per_mille=(20, 40)[i // 2 % 2]),
    ),
}


def trial(case: Case, out: Path, injected: bool, repeats: int) -> Path:
    """Run one side of a case, unless its folder has it already, and return the folder."""
    if (out / "timings.json").exists():
        return out
    kind = case.place.partition("-")[0] or "scheduler"
    preloads: dict[str, list[Path]] = {}
    if injected and case.preload:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"injected_{kind}.py").write_text(case.preload)
        preloads = {case.place or "scheduler": [out / f"injected_{kind}.py"]}
    before = _cpu_ticks()
    with cluster(out, threads=case.threads, preloads=preloads) as nodes:
        _cap(nodes, case.caps | (case.slower if injected else {}))
        if case.alone:
            pin(nodes, case.place)
        with case.fault(nodes, case.place) if injected and case.fault else nullcontext():
            answer = nodes.workload(*case.work, repeats=repeats, record=out / RECORD_FOLDER)
    stolen, all_ticks = (now - then for now, then in zip(_cpu_ticks(), before, strict=True))
    (out / "steal_pct").write_text(f"{100 * stolen / all_ticks:.1f}")
    keep(answer, out)
    return out


def _cpu_ticks() -> tuple[int, int]:
    """Return the ticks of all CPUs: those that other guests took, and all."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


def _cap(nodes: Cluster, caps: dict[str, float]) -> None:
    for node, mbit in caps.items():
        nodes.cap(node, mbit)


def judge(case: Case, out: Path, repeats: int) -> dict[str, Any]:
    """Run both sides and compare the first cause with the truth."""
    old, new = (
        explain(open_trial(trial(case, out / side, side == "new", repeats))).summary
        for side in ("old", "new")
    )
    difference = Difference(old, new)
    first, place, seconds = difference.ranked()[0]
    return {
        "case": case.name,
        "old_s": round(old.makespan_s, 2),
        "new_s": round(new.makespan_s, 2),
        "causes": [(b.name, where, round(s, 2)) for b, where, s in difference.ranked()[:3]],
        "alone": (new.ranked()[0][0].name, new.ranked()[0][1]),
        "without_wire_s": round(new.replayed.without_wire_s, 2) if new.replayed else None,
        "right": first in case.truth,
        "place": not case.place or place == case.place,
        "steal_pct": [(out / side / "steal_pct").read_text() for side in ("old", "new")],
        "explained": round(seconds / difference.makespan_s, 2),
    }


def main(args: Namespace) -> None:
    judged: list[dict[str, Any]] = []
    for index in range(args.first, args.first + args.repeat):
        for name in chosen(args.only, CASES):
            judged.append(judge(CASES[name](index), args.out / f"{name}-{index}", args.repeats))
            print(json.dumps(judged[-1]), flush=True)
    right = [row for row in judged if row["right"]]
    placed = sum(row["place"] for row in right)
    print(f"{len(right)} of {len(judged)} causes right, {placed} with the right place")


if __name__ == "__main__":
    main(ARGUMENTS)
