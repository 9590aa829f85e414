"""Rules about the memory of workers: spilling, pauses, queuing."""

from __future__ import annotations

from dasklab.breakdown.answers.advice.rules import DISTRIBUTED, AdviceRule, Measurements, Symptom
from dasklab.breakdown.answers.facts import largest_results
from dasklab.breakdown.model.causes import DISK, PAUSED

SATURATION = "scheduler.worker-saturation"
UNLIMITED = ("inf", "Infinity")  # as text, and as JSON has it


def _largest(about: Measurements) -> str:
    """Name the kind of task whose results need most memory, for the end of a sentence."""
    kind, nbytes = largest_results(about.repeat)
    return f"; results of {kind} are the largest together, {nbytes / 1e6:,.0f} MB" if nbytes else ""


def _spilling(about: Measurements) -> Symptom | None:
    seconds = max(about.path_s(DISK), about.thread_s(DISK))
    if not seconds:
        return None
    text = f"Writing and reading spilled data took {seconds:.1f} s {about.length}"
    return Symptom(seconds, text + _largest(about))


def _paused(about: Measurements) -> Symptom | None:
    seconds = about.thread_s(PAUSED)
    if not seconds:
        return None
    text = f"Workers were paused for {seconds:.1f} s {about.length} because their memory was nearly full"
    return Symptom(seconds, text + _largest(about))


def _queuing(about: Measurements) -> Symptom | None:
    if about.facts.setting(SATURATION) not in UNLIMITED:
        return None
    seconds = about.thread_s(DISK, PAUSED)
    return Symptom(
        seconds,
        f"The scheduler sends workers all tasks at once (worker-saturation is inf), and full memory cost"
        f" {seconds:.1f} s {about.length}",
    )


RULES = (
    AdviceRule(
        "spilling", "", "Use smaller chunks, more workers or more memory.",
        f"{DISTRIBUTED}/worker-memory.html", _spilling,
    ),
    AdviceRule(
        "paused workers", "", "Use smaller chunks, more workers or more memory.",
        f"{DISTRIBUTED}/worker-memory.html", _paused,
    ),
    AdviceRule(
        "queuing is off", "worker-saturation inf",
        "Set distributed.scheduler.worker-saturation to 1.1.",
        f"{DISTRIBUTED}/scheduling-policies.html#queuing", _queuing,
    ),
)  # fmt: skip
