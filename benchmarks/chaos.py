"""Kill processes at random moments: does a lab survive the death of any process that works on it?

    python benchmarks/chaos.py --kills 60 --seed 1        # a lab of containers, about a minute per kill
    python benchmarks/chaos.py --kills 5 --seed 7 --folder /tmp/chaos    # keeps the folder and its logs

Each round starts ``dasklab up``, ``run`` or ``destroy`` in a separate lab, waits for a random part of the
time that the command takes, and sends SIGKILL to one process: the driver (dasklab), the playbook
(ansible-playbook), one of its workers, or the endpoint. Command, victim and moment are drawn from the seed.
Then it checks that

- the command ends, unless it was the victim;
- the next ``dasklab up`` completes;
- no trial is ``ok`` and incomplete;
- the final ``dasklab destroy`` leaves no process, mount, control group, lock or state.

Exit status: 0 if all checks passed, else 1. Requires what a lab of containers requires (``dasklab doctor``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.paths import SHARE as ROOT
from minipve.base import process
from minipve.base.paths import Paths
from minipve.guests.lxc import cgroups

VICTIMS = ("driver", "playbook", "worker", "endpoint")
COMMANDS = ("up", "run", "run", "destroy")  # runs are drawn twice as often: they have the most to lose
FIRST_GUESS_S = {"up": 40.0, "run": 60.0, "destroy": 8.0}  # replaced by the command's last duration
LIMIT_S = 600.0  # within which a command must end after one of its processes was killed
EXPERIMENT = """
title: Chaos
question: Does a run survive the death of its processes?
metrics: {compute_s: ~}
factors:
  rate_mbit: {sets: nics.worker-1.rate_mbit, levels: [0, 100]}
workload: {name: array_study, params: {size: 1000, chunk: 250}}
runs: 3
warmups: 1
blocks: 1
probes: {pings: 3, iperf_runs: 1, iperf_s: 1}
run_s: 1
ttl_s: 120
tolerances: {foreign_pct: 100} # other work on this machine does not matter here
"""
DOCUMENTS = ("trial.json", "attempt.json", "configured.json", "measured.json", "timings.json", "hosts.json")


@dataclass
class Bench:
    """A lab in a folder, and the commands of its user."""

    folder: Path
    durations_s: dict[str, float] = field(default_factory=lambda: dict(FIRST_GUESS_S))

    def __post_init__(self) -> None:
        shutil.copytree(DEFAULT.parent, self.folder / "inventory", dirs_exist_ok=True)
        self.experiment.write_text(EXPERIMENT)
        self.logs.mkdir(exist_ok=True)

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory" / DEFAULT.name

    @property
    def experiment(self) -> Path:
        return self.folder / "chaos.yml"

    @property
    def logs(self) -> Path:
        """The folder with the output of each command."""
        return self.folder / "logs"

    @property
    def paths(self) -> Paths:
        """The folders of the lab's endpoint."""
        return Paths(self.folder / "state", self.folder)

    def start(self, log: str, *words: str) -> subprocess.Popen[bytes]:
        """Start dasklab with these arguments, its output in a log."""
        environment = {
            **os.environ,
            "DASKLAB_INVENTORY": str(self.inventory),
            "DASKLAB_STATE": str(self.folder / "state"),
            "DASKLAB_RESULTS": str(self.folder / "results"),
            "HOME": str(self.folder),  # also the place of the lab's locks
            "MINIPVE_CACHE": os.environ.get("MINIPVE_CACHE", str(Path.home() / ".cache" / "minipve")),
            "DASKLAB_CACHE": os.environ.get("DASKLAB_CACHE", str(Path.home() / ".cache" / "dasklab")),
        }
        program = str(Path(sys.executable).with_name("dasklab"))
        with (self.logs / log).open("wb") as output:
            return subprocess.Popen(
                [program, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, log: str, *words: str) -> int | None:
        """Run dasklab with these arguments. Return its exit status, or None if it did not end in time."""
        start_s = time.monotonic()
        child = self.start(log, *words)
        status = wait(child, LIMIT_S)
        if status == 0:
            self.durations_s[words[0]] = time.monotonic() - start_s
        return status

    def words(self, command: str, dice: Random) -> list[str]:
        """Return the arguments of a command. An interrupted run is resumed or not, at random."""
        if command == "up":
            return ["up", "--guests", "container"]
        if command == "destroy":
            return ["destroy", "--yes"]
        unfinished = [run for run in self.runs() if len(list(run.glob("*/result.json"))) < 3]
        resumed = unfinished and dice.random() < 0.5
        return ["run", "--no-wait", str(unfinished[-1] if resumed else self.experiment)]

    def runs(self) -> list[Path]:
        """Return the runs of the experiment, oldest first."""
        return sorted((self.folder / "results" / "chaos").glob("*"))

    def processes(self) -> dict[int, str]:
        """Return processes whose command line or environment contains the lab's folder."""
        lines = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.folder) in line or str(self.folder).encode() in (entry / "environ").read_bytes():
                    lines[int(entry.name)] = line.strip()
        return {pid: line for pid, line in lines.items() if pid not in ancestors()}

    def victim(self, kind: str, driver: subprocess.Popen[bytes], dice: Random) -> int | None:
        """Return the process to kill; None if there is none of this kind at the moment."""
        if kind == "driver":
            return driver.pid if driver.poll() is None else None
        if kind == "endpoint":
            return process.recall(self.paths.endpoint_lock)
        ansible = [pid for pid, line in self.processes().items() if "ansible-playbook" in line]
        mains = [pid for pid in ansible if parent(pid) == driver.pid]
        if kind == "playbook":
            return mains[0] if mains else None
        workers = sorted(pid for pid in ansible if parent(pid) in mains)
        return dice.choice(workers) if workers else None


@dataclass
class Kill:
    """One round: which process of which command was killed when, and what was wrong afterwards."""

    command: str
    kind: str
    after_s: float
    faults: list[str] = field(default_factory=list)


def parent(pid: int) -> int:
    """Return the parent of a process, 0 if it has ended."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def ancestors() -> set[int]:
    """Return this process and its ancestors, whose command lines may contain the folder, too."""
    pids, pid = set(), os.getpid()
    while pid:
        pids.add(pid)
        pid = parent(pid)
    return pids


def wait(child: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Wait for a command and return its exit status. After ``limit_s`` kill it and return None."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return None


def play_round(bench: Bench, number: int, dice: Random) -> Kill | None:
    """Start a command, kill, check, repair. Return None if the command ended before there was a victim."""
    command, kind = dice.choice(COMMANDS), dice.choice(VICTIMS)
    share, waits = dice.random(), dice.random() < 0.5
    driver = bench.start(f"{number:03}-{command}.log", *bench.words(command, dice))
    start_s = time.monotonic()
    with suppress(subprocess.TimeoutExpired):
        driver.wait(share * bench.durations_s[command])
    pid = None
    while pid is None and driver.poll() is None:
        pid = bench.victim(kind, driver, dice)
        time.sleep(0.05)
    kill = Kill(command, kind, time.monotonic() - start_s)
    if pid is None:
        return None if bench.run(f"{number:03}-after.log", "up", "--guests", "container") == 0 else kill
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    status = wait(driver, LIMIT_S)
    if status is None:
        kill.faults.append(f"did not end within {LIMIT_S:.0f} s")
    elif status < 0 and kind != "driver":
        kill.faults.append(f"ended by signal {-status}")
    if waits:  # so that the playbook of a killed driver may end before the next command
        time.sleep(dice.uniform(0, 20))
    log = f"{number:03}-after.log"
    if bench.run(log, "up", "--guests", "container") != 0:
        kill.faults.append(f"the next `dasklab up` failed, see {bench.logs / log}")
    kill.faults += [f"{trial}: {fault}" for trial, fault in incomplete(bench)]
    return kill


def incomplete(bench: Bench) -> Iterator[tuple[Path, str]]:
    """Yield trials that count as ok but are not complete, with what is missing."""
    for file in bench.folder.glob("results/*/*/*/result.json"):
        trial = file.parent
        try:
            if json.loads(file.read_text())["status"] != "ok":
                continue
            documents = {name: json.loads((trial / name).read_text()) for name in DOCUMENTS}
        except (OSError, ValueError) as error:
            yield trial, f"damaged: {error}"
            continue
        planned = documents["trial.json"]["runs"] + documents["trial.json"]["warmups"]
        if len(documents["timings.json"]["samples"]) != planned:
            yield trial, f"{len(documents['timings.json']['samples'])} of {planned} runs"
        if documents["attempt.json"]["exit_status"] or (trial / "failed.json").exists():
            yield trial, "ok, although it failed"


def leftovers(bench: Bench) -> Iterator[str]:
    """Yield what is left of a lab that was destroyed."""
    deadline = time.monotonic() + 10
    while bench.processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    yield from (f"process {pid}: {line[:150]}" for pid, line in bench.processes().items())
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    yield from (f"mount {line.split()[4]}" for line in mounts if str(bench.folder) in line)
    if cgroups.exist(bench.paths):
        yield f"control groups {cgroups.folder(bench.paths)}"
    if (bench.folder / "state").exists():
        yield f"state {bench.folder / 'state'}"
    yield from (f"lock {file}" for file in (bench.folder / ".local/state/dasklab-locks").glob("*"))


def print_table(kills: list[Kill], left: list[str]) -> None:
    """Print the kills by command and victim, and everything that was wrong."""
    counts = Counter((kill.command, kill.kind) for kill in kills)
    bad = Counter((kill.command, kill.kind) for kill in kills if kill.faults)
    print(f"\n{'':10}" + "".join(f"{kind:>14}" for kind in VICTIMS))
    for command in dict.fromkeys(COMMANDS):
        cells = [f"{counts[command, kind]} ({bad[command, kind]} bad)" for kind in VICTIMS]
        print(f"{command:10}" + "".join(f"{cell:>14}" for cell in cells))
    faults = [f"{kill.command}, {kill.kind} killed: {fault}" for kill in kills for fault in kill.faults]
    print(f"\n{len(kills)} kills, {len(faults)} faults, {len(left)} leftovers")
    for line in [*faults, *(f"left behind: {line}" for line in left)]:
        print(f"  {line}")


def main() -> None:
    """Parse the command line and run the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60, help="number of kills (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of commands, victims and moments")
    parser.add_argument(
        "--folder", type=Path, help="folder of the lab, which is kept (default: a temporary one)"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = (args.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(1 if survive(Bench(folder), args.kills, Random(args.seed)) else 0)


def survive(bench: Bench, count: int, dice: Random) -> bool:
    """Kill ``count`` processes. Return whether anything was wrong."""
    if bench.run("000-up.log", "up", "--guests", "container") != 0:
        sys.exit(f"the lab cannot be built: see {bench.logs / '000-up.log'}")
    print(f"lab built in {bench.durations_s['up']:.0f} s; files: {bench.folder}", flush=True)
    kills: list[Kill] = []
    rounds = 0
    while len(kills) < count:
        rounds += 1
        kill = play_round(bench, rounds, dice)
        if kill is None:
            continue
        kills.append(kill)
        what = f"{kill.command}: killed the {kill.kind} after {kill.after_s:.1f} s"
        print(f"{len(kills):3}/{count} {what}: {'; '.join(kill.faults) or 'ok'}", flush=True)
    left = [] if bench.run("999-destroy.log", "destroy", "--yes") == 0 else ["`dasklab destroy` failed"]
    left += leftovers(bench)
    print_table(kills, left)
    return bool(left) or any(kill.faults for kill in kills)


if __name__ == "__main__":
    main()
