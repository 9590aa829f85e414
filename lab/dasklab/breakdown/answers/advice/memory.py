"""Rules about the memory of workers: spilling, pauses, queuing."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.answers.facts.facts import largest_results
from dasklab.breakdown.model.causes import DISK, LAG, PAUSED
from dasklab.terminal import data_size

SATURATION = "scheduler.worker-saturation"
FEW_RESULT_BYTES = 10e6  # no worker's limit is so low
UNLIMITED = ("inf", "Infinity")  # as text, and as JSON has it


def _largest(case: Measurements) -> str:
    """Name the kind of task whose results need most memory, for the end of a sentence."""
    kind, nbytes = largest_results(case.repeat)
    is_much = nbytes >= FEW_RESULT_BYTES
    return f"; results of {kind} are the largest together, {data_size(nbytes)}" if is_much else ""


def _spilling(case: Measurements) -> Symptom | None:
    """Look at spilled bytes: Dask reports storing a result as time of a disk, spilled or not.

    What is spilled between tasks keeps the event loop from handling their ends, or from starting others.
    """
    of_loops = (LAG,) if case.summary.lag_activity == "spill" else ()
    seconds = max(case.path_s(DISK, *of_loops), case.thread_s(DISK, *of_loops))
    nbytes = case.facts.spilled_bytes
    if not seconds or not nbytes:
        return None
    text = (
        f"The run waited {seconds:.1f} s {case.length} for spilled data, {data_size(nbytes)} written and read"
    )
    return Symptom(seconds, text + _largest(case))


def _paused(case: Measurements) -> Symptom | None:
    seconds = _paused_s(case)
    if not seconds or _has_few_results(case):
        return None
    return Symptom(seconds, _pause(case) + _largest(case))


def _unmanaged(case: Measurements) -> Symptom | None:
    seconds = _paused_s(case)
    if not seconds or not _has_few_results(case):
        return None
    few = f"Dask manages less than {FEW_RESULT_BYTES / 1e6:.0f} MB of it"
    return Symptom(seconds, f"{_pause(case)}, although {few}")


def _paused_s(case: Measurements) -> float:
    """Return what pauses cost: on the critical path, or as a share of all threads' time."""
    return max(case.path_s(PAUSED), case.thread_s(PAUSED))


def _pause(case: Measurements) -> str:
    """Name the paused worker, or say how many there were, and for how long they were paused."""
    repeat, paused = case.repeat, case.repeat.evidence.paused
    nodes = np.unique(paused.member)
    times = paused.within(nodes, np.full(len(nodes), repeat.start), np.full(len(nodes), repeat.stop))
    if len(nodes) == 1:
        name, seconds = repeat.places.nodes[int(nodes[0])], float(times[0])
        return f"{name} was paused for {seconds:.1f} s {case.length} because its memory was nearly full"
    longest = f" for up to {times.max():.1f} s {case.length}" if len(nodes) else ""
    return f"Workers were paused{longest} because their memory was nearly full"


def _has_few_results(case: Measurements) -> bool:
    """Whether the data that Dask manages is too little to fill the memory of any worker.

    Heartbeats know all of it; without them, only what tasks of the record made and the client sent counts.
    """
    if case.facts.memory:
        return max(float(worker.managed.max()) for worker in case.facts.memory) < FEW_RESULT_BYTES
    _, most = largest_results(case.repeat)
    return not case.facts.scattered and most * len(set(case.repeat.prefixes)) < FEW_RESULT_BYTES


def _queuing(case: Measurements) -> Symptom | None:
    if case.facts.setting(SATURATION) not in UNLIMITED:
        return None
    seconds = case.thread_s(DISK, PAUSED)
    return Symptom(
        seconds,
        f"The scheduler sends workers all tasks at once (worker-saturation is inf), and full memory cost"
        f" {seconds:.1f} s {case.length}",
    )


RULES = (
    AdviceRule(
        "spilling", "", "Use smaller chunks, more workers or more memory.",
        pages.MEMORY, _spilling, (DISK,),
    ),
    AdviceRule(
        "paused workers", "", "Use smaller chunks, more workers or more memory.",
        pages.MEMORY, _paused, (PAUSED,),
    ),
    AdviceRule(
        "unmanaged memory", "",
        "Look for what is no result of a task: global variables, caches, leaks, memory that libraries keep.",
        pages.UNMANAGED, _unmanaged, (PAUSED,),
    ),
    AdviceRule(
        "queuing is off", "worker-saturation inf",
        "Set distributed.scheduler.worker-saturation to 1.1.",
        pages.QUEUING, _queuing, (DISK, PAUSED),
    ),
)  # fmt: skip
