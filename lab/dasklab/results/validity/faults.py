"""Compare the faults that happened with those that the trial requests; pure."""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import ObservedFault, ObservedFaults, Timings
from dasklab.model.settings.faults import Fault

LATE_S = 1.0  # a fault may start, and end, later than requested: a service takes time to start
KILLED_STATES = ("inactive", "failed")  # systemd's words for a killed service


def differences(trial: RequestedTrial, observed: ObservedFaults | None, timings: Timings) -> Iterator[str]:
    """Yield a line for each fault that did not happen as requested."""
    timed = timings.timed
    repeats_s = max(sample.stop for sample in timed) - min(sample.start for sample in timed)
    for fault in trial.faults:
        observation = observed.hosts.get(fault.host) if observed else None
        if observation is None:
            yield f"requested {fault}, but it was not read back"
        elif difference := _difference(fault, observation, repeats_s):
            yield f"requested {fault}, {difference}"


def _difference(fault: Fault, observed: ObservedFault, repeats_s: float) -> str | None:
    """Return how a fault differs from the request. The end of the repeats may have ended it early."""
    requested_s = float(fault.at_s) if not isinstance(fault.at_s, tuple) else fault.at_s[0]
    if observed.at_s is None or observed.at_s > repeats_s:
        return f"but it did not happen: the repeats took {repeats_s:.2f} s"
    if observed.state not in (("down",) if fault.does == "cut" else KILLED_STATES):
        return f"but meanwhile it was {observed.state}"
    if abs(observed.at_s - requested_s) > LATE_S:
        return f"it came at {observed.at_s:.2f} s"
    if fault.for_s is None:
        return None
    if observed.lasted_s is None:
        beyond_repeats = observed.at_s + fault.for_s + LATE_S > repeats_s
        return None if beyond_repeats else f"it did not end within {repeats_s:.2f} s"
    if abs(observed.lasted_s - fault.for_s) > LATE_S:
        return f"it lasted {observed.lasted_s:.2f} s"
    return None


def expected_workers(trial: RequestedTrial) -> range:
    """Return how many worker hosts may be left: killed ones are gone, others with a fault may be."""
    faulty = [fault for fault in trial.faults if fault.host != "scheduler"]
    killed = sum(fault.does == "kill" for fault in faulty)
    return range(trial.workers - len(faulty), trial.workers - killed + 1)


def reproduction(trial: RequestedTrial, seed: int) -> Iterator[str]:
    """Yield a failed trial's faults with the seed: enough to reproduce it."""
    if trial.faults:
        yield f"with {', '.join(map(str, trial.faults))} (seed {seed})"
