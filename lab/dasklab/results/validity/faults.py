"""Did what was to go wrong go wrong, when it was to? And how many workers may be left of it; pure."""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.model.faults import Fault
from dasklab.model.files import ObservedFault, ObservedFaults, Timings
from dasklab.model.trial import Trial

LATE_S = 1.0  # a fault may come, and end, so much later than asked: a service takes its time to start
GONE = ("inactive", "failed")  # what systemd calls a service that was killed


def differences(trial: Trial, seen: ObservedFaults | None, timings: Timings) -> Iterator[str]:
    """Every fault that was not as asked, in words."""
    timed = timings.timed
    runs_s = max(sample.stop for sample in timed) - min(sample.start for sample in timed)
    for fault in trial.faults:
        found = seen.hosts.get(fault.host) if seen else None
        if found is None:
            yield f"{fault} was asked, nobody said what happened"
        elif why := _other(fault, found, runs_s):
            yield f"{fault} was asked, {why}"


def _other(fault: Fault, found: ObservedFault, runs_s: float) -> str | None:
    """In which way a fault was another; one that the runs did not outlast may have been ended early."""
    asked_s = float(fault.at_s) if not isinstance(fault.at_s, tuple) else fault.at_s[0]
    if found.at_s is None or found.at_s > runs_s:
        return f"it was not seen: the runs took {runs_s:.2f} s"
    if found.state not in (("down",) if fault.does == "cut" else GONE):
        return f"meanwhile it was {found.state}"
    if abs(found.at_s - asked_s) > LATE_S:
        return f"it came at {found.at_s:.2f} s"
    if fault.for_s is None:
        return None
    if found.lasted_s is None:
        over = found.at_s + fault.for_s + LATE_S > runs_s
        return None if over else f"it did not end in {runs_s:.2f} s"
    if abs(found.lasted_s - fault.for_s) > LATE_S:
        return f"it lasted {found.lasted_s:.2f} s"
    return None


def workers(trial: Trial) -> range:
    """How many worker hosts may be there at the end: no killed ones; others with a fault may have left."""
    faulty = [fault for fault in trial.faults if fault.host != "scheduler"]
    killed = sum(fault.does == "kill" for fault in faulty)
    return range(trial.workers - len(faulty), trial.workers - killed + 1)


def told(trial: Trial, seed: int) -> Iterator[str]:
    """What a trial that failed had to bear: enough to do it again."""
    if trial.faults:
        yield f"with {', '.join(map(str, trial.faults))} (seed {seed})"
