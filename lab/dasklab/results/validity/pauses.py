"""Whether all processes ran all the time: judge the pauses that workload and driver recorded; pure.

A pause counts if the process, or its machine, was stopped from outside. A process that computes without
letting its other threads run, or that waits for a busy CPU, is part of what is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.files import Attempt, Pause, Timings

# A stopped process neither computes nor waits for a CPU. Another one does so for almost all of a pause, but
# on a machine whose CPU is taken by its host, a part of that time is not accounted for.
ACTIVE_SHARE = 0.2


def differences(timings: Timings, attempt: Attempt, allowed: Tolerances) -> Iterator[str]:
    """Yield a line for each pause that was too long: of dasklab in the trial, of others in a timed repeat."""
    if attempt.suspended_s > allowed.paused_s:
        yield f"the machine that runs dasklab was suspended for {attempt.suspended_s:.1f} s during the trial"
    yield from _too_long(attempt.pauses, allowed, "during the trial")
    for sample in timings.timed:
        yield from _too_long(sample.pauses, allowed, f"in repeat {sample.repeat}")


def _too_long(pauses: Iterable[Pause], allowed: Tolerances, when: str) -> Iterator[str]:
    for pause in pauses:
        if pause.suspended_s > allowed.paused_s:
            yield f"{pause.process}: its machine was suspended for {pause.suspended_s:.1f} s {when}"
        elif pause.lasted_s > allowed.paused_s and _is_stopped(pause):
            active = f"used {pause.cpu_s:.1f} s of CPU and waited {pause.waited_s:.1f} s for one"
            yield f"{pause.process}: the process was stopped for {pause.lasted_s:.1f} s (it {active}) {when}"


def _is_stopped(pause: Pause) -> bool:
    return pause.cpu_s + pause.waited_s < ACTIVE_SHARE * pause.lasted_s
