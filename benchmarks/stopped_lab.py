"""Stop a whole lab for some seconds in each phase of a trial: does the verdict say so?

    python benchmarks/stopped_lab.py --stops 12 --seed 1    # a lab of containers, about a minute per stop
    python benchmarks/stopped_lab.py --phases probe-rtt-before,run,stop --seconds 20 --folder /tmp/stops

Each stop is a SIGSTOP to dasklab, Ansible, the endpoint and every process in the containers, in one phase of
one trial, and a SIGCONT to all of them after ``--seconds``. A trial that was stopped must not be ``ok``; its
reasons are printed.

Exit status: 0 if each stop was seen and nothing was left, else 1. Requires what a lab of containers requires
(``dasklab doctor``).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from chaos import LIMIT_S, Bench, build, leftovers, parent
from chaos_recorder import until, wait
from dasklab.running.playbooks.ansible_lab import LOG, PHASE_DONE
from dasklab.running.playbooks.orders import TIMED_PHASES
from minipve.guests.lxc import cgroups


@dataclass
class Stop:
    """A stop and what became of its trial."""

    phase: str
    trial: str
    processes: int
    status: str = "without a verdict"
    reasons: Sequence[str] = ()

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons) or "no reason"
        return f"{self.phase} of {self.trial}, {self.processes} processes: {self.status}: {reasons}"


def moments(seed: int, phases: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield phases and the seconds to wait in each. Each phase comes once before any comes again."""
    dice = Random(seed)
    while True:
        for phase in dice.sample(phases, len(phases)):
            yield phase, dice.uniform(0, 2 if phase == "run" else 0.5)


def lab_processes(bench: Bench) -> set[int]:
    """Return every process of the lab, also those in its containers, whose files are in other name spaces."""
    pids = set(bench.processes())
    hierarchy = next(iter(cgroups.ROOT.glob(f"*/{cgroups.folder(bench.paths)}")), None)
    hierarchy = hierarchy or cgroups.ROOT / cgroups.folder(bench.paths)
    for folder, _, _ in os.walk(hierarchy):
        with suppress(OSError):  # the group has just been removed
            pids |= {int(pid) for pid in Path(folder, "cgroup.procs").read_text().split()}
    parents = {int(entry.name): parent(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    while started := {pid for pid, owner in parents.items() if owner in pids and pid not in pids}:
        pids |= started
    return pids


def stop(bench: Bench, seconds: float) -> int:
    """Stop all processes of the lab for some time. Return their number."""
    stopped: set[int] = set()
    try:
        for _ in range(2):  # a process may have been started while others were stopped
            for pid in lab_processes(bench) - stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.add(pid)
        time.sleep(seconds)
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    return len(stopped)


def ended_phases(trial: Path) -> int:
    """Return how many phases of a trial have ended."""
    with suppress(OSError):
        return (trial / LOG).read_text(errors="replace").count(PHASE_DONE)
    return 0


def stopped_run(
    bench: Bench, number: int, plan: Iterator[tuple[str, float]], limit: int, seconds: float
) -> Iterator[Stop]:
    """Run the experiment and stop the lab in up to ``limit`` of its trials. Yield the stops."""
    driver = bench.start(f"{number:03}-run.log", *bench.words("run", 1.0))
    stops: list[Stop] = []
    run = _wait_for_run(bench, driver, number)
    while driver.poll() is None and len(stops) < limit:
        trial = next((path for path in sorted(run.glob("*/")) if not (path / "attempt.json").exists()), None)
        if trial is None or not (trial / "orders.json").exists() or trial.name in {s.trial for s in stops}:
            time.sleep(0.1)
            continue
        phase, pause_s = next(plan)
        _wait_for_phase(driver, trial, phase)
        time.sleep(pause_s)
        stops.append(Stop(phase, trial.name, stop(bench, seconds)))
    if wait(driver, LIMIT_S) is None:
        print(f"run {number} did not end within {LIMIT_S:.0f} s", flush=True)
    for lab_stop in stops:
        with suppress(OSError):
            result = json.loads((run / lab_stop.trial / "result.json").read_text())
            lab_stop.status, lab_stop.reasons = result["status"], result["reasons"]
        yield lab_stop


def _wait_for_run(bench: Bench, driver: subprocess.Popen[bytes], number: int) -> Path:
    until(lambda: len(bench.runs()) >= number or driver.poll() is not None, LIMIT_S)
    if len(bench.runs()) < number:
        sys.exit(f"the run did not start: see {bench.logs}")
    return bench.runs()[-1]


def _wait_for_phase(driver: subprocess.Popen[bytes], trial: Path, phase: str) -> None:
    position = TIMED_PHASES.index(phase)
    until(lambda: ended_phases(trial) >= position or driver.poll() is not None, LIMIT_S)


def main() -> None:
    """Parse the command line, stop the lab and print the verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stops", type=int, default=len(TIMED_PHASES), help="number (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a stop (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of phases and moments")
    parser.add_argument(
        "--phases",
        type=lambda text: text.split(","),
        default=list(TIMED_PHASES),
        help=f"some of {','.join(TIMED_PHASES)} (default: all)",
    )
    parser.add_argument("--folder", type=Path, help="folder of the lab, which is kept")
    args = parser.parse_args()
    if unknown := [phase for phase in args.phases if phase not in TIMED_PHASES]:
        parser.error(f"no such phase: {', '.join(unknown)}; phases are {', '.join(TIMED_PHASES)}")
    with tempfile.TemporaryDirectory(prefix="stops-") as temporary:
        folder = (args.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if measure(folder, args) else 1)


def measure(folder: Path, args: argparse.Namespace) -> bool:
    """Stop the lab as often as requested. Return whether each stop was seen and nothing was left."""
    bench = build(folder)
    plan, number = moments(args.seed, args.phases), 0
    stops: list[Stop] = []
    while len(stops) < args.stops:
        number += 1
        before = len(stops)
        for lab_stop in stopped_run(bench, number, plan, args.stops - before, args.seconds):
            stops.append(lab_stop)
            print(f"{len(stops):3}/{args.stops} {lab_stop}", flush=True)
        if len(stops) == before:
            sys.exit(f"no trial could be stopped: see {bench.logs}")
    left = [] if bench.run("999-destroy.log", "destroy", "--yes") == 0 else ["`dasklab destroy` failed"]
    left += leftovers(bench)
    seen_count = sum(lab_stop.status != "ok" for lab_stop in stops)
    print(f"\n{len(stops)} stops of {args.seconds:g} s, {seen_count} seen, {len(left)} leftovers")
    for line in left:
        print(f"  left behind: {line}")
    return seen_count == len(stops) and not left


if __name__ == "__main__":
    main()
