"""Run real A/A experiments in containers: identical levels, on a quiet node and with a noisy neighbour.

    python benchmarks/aa_experiments.py FOLDER [--comparisons 40] [--levels 10] [--blocks 3] [--repeats 2]
                                        [--only quiet|neighbour] [--report]

An experiment has ten levels of ``array_study`` that differ only in their ``ttl_s``, which changes nothing.
So every difference that is shown is false, and 5 % of the intervals may exclude x 1. A comparison is one
level's ``compute_s`` or ``transfer_mb`` with the baseline's. We promise at most 2 false differences in 40
comparisons, under both conditions. The neighbour is a process that computes for 10 to 45 s and then pauses
for as long. Trials that it disturbs must be noticed, left out and repeated, not counted as differences.

FOLDER has its own lab (a copy of the inventory, state, results), which is built if it is missing. The script
can be stopped at any time; the same command continues the interrupted run. ``--report`` prints the results so
far. The last line is the command that removes the lab.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "folder": (Path, "of the lab and its results"),
            "--comparisons": (40, "how many to make, under each condition"),
            "--levels": (10, "levels of an experiment"),
            "--blocks": (3, "blocks of an experiment"),
            "--repeats": (2, "repeats of a trial"),
            "--only": (("quiet", "neighbour"), "one of the conditions"),
            "--report": (False, "print the results so far"),
        },
        smallest="{folder} --report",
    )

import yaml
from dasklab.console.trials.exit_status import ExitStatus
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.model.files import Campaign
from dasklab.paths import SHARE as ROOT
from dasklab.results import load
from dasklab.results.run import Run
from dasklab.results.statistics.answers import answers

METRICS = ("compute_s", "transfer_mb")
CONDITIONS = ("quiet", "neighbour")
BUSY_S = (10.0, 45.0)
LOOP = "while True: pass"
DASKLAB = str(Path(sys.executable).with_name("dasklab"))


@dataclass(frozen=True)
class Lab:
    """The lab of the folder, with its own inventory, state and results."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        own = {
            "DASKLAB_INVENTORY": str(self.folder / "inventory" / DEFAULT.name),
            "DASKLAB_STATE": str(self.folder / "state"),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        }
        return {**os.environ, **own}

    def command(self, *words: str, results: str) -> None:
        """Run a command of the lab; its output goes to this terminal."""
        environment = {**self.environment, "DASKLAB_RESULTS": str(self.folder / results)}
        status = subprocess.run([DASKLAB, *words], env=environment, cwd=ROOT, check=False).returncode
        if status not in (ExitStatus.OK, ExitStatus.INVALID):
            sys.exit(f"dasklab {' '.join(words)} ended with status {status}")

    def build(self) -> None:
        """Build the lab of containers, if it does not exist."""
        if not (self.folder / "inventory").exists():
            shutil.copytree(DEFAULT.parent, self.folder / "inventory")
        self.command("up", "--guests", "container", results="baseline")


def document(levels: int, blocks: int, repeats: int) -> dict[str, object]:
    """Return the experiment; its levels differ in how long a hung trial would live."""
    same = {f"same {number}": {"ttl_s": 3600 + number} for number in range(levels)}
    return {
        "title": "A/A",
        "question": "Is a difference shown where there is none?",
        "metrics": dict.fromkeys(METRICS),
        "factors": {"level": {"levels": same}},
        "workload": {"name": "array_study", "params": {"size": 2000, "chunk": 250}},
        "repeats": repeats,
        "blocks": blocks,
        "probes": {"pings": 5, "iperf_runs": 0},
        "repeat_s": 5,
    }


@contextmanager
def neighbour(seed: int) -> Iterator[None]:
    """Start a program that alternately computes on one core and pauses."""
    end, dice = threading.Event(), random.Random(seed)

    def alternate() -> None:
        while not end.is_set():
            with subprocess.Popen([sys.executable, "-c", LOOP]) as process:
                end.wait(dice.uniform(*BUSY_S))
                process.kill()
            end.wait(dice.uniform(*BUSY_S))

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@dataclass
class Tally:
    """Counts over all comparisons of one condition."""

    comparisons: int = 0
    excluded: int = 0
    differences: int = 0
    trials: int = 0
    invalid: int = 0

    def add(self, run: Path) -> None:
        statuses = [trial.result.status for trial in Run(run).trials]
        self.trials += len(statuses)
        self.invalid += sum(status != "ok" for status in statuses)
        for answer in answers(load(run), METRICS).values():
            cells = [cell for cell in answer.cells if not cell.baseline] if answer else []
            self.comparisons += len(cells)
            self.excluded += sum(cell.difference.excludes(0) for cell in cells)
            self.differences += sum(cell.is_shown for cell in cells)

    def line(self) -> str:
        return (
            f"{self.comparisons} comparisons: {self.differences} shown, {self.excluded} exclude x 1;"
            f" {self.invalid} of {self.trials} trials left out"
        )


def runs(folder: Path, condition: str) -> list[Path]:
    """Return the runs of a condition, oldest first."""
    return sorted(path.parent for path in (folder / condition).glob(f"aa/*/{Campaign.FILE}"))


def is_complete(run: Path) -> bool:
    """Whether all trials of a run are finished."""
    return len(Run(run).trials) == len(Run(run).planned)


def tally(folder: Path, condition: str) -> Tally:
    """Count over the complete runs of a condition."""
    counted = Tally()
    for run in runs(folder, condition):
        if is_complete(run):
            counted.add(run)
    return counted


def measure(lab: Lab, condition: str, comparisons: int, levels: int) -> None:
    """Run experiments until there are enough comparisons, the incomplete one first.

    Disturbed trials are left out, and their comparisons with them. So there are at most twice as many runs.
    """
    most = 2 * math.ceil(comparisons / ((levels - 1) * len(METRICS)))
    while (counted := tally(lab.folder, condition)).comparisons < comparisons:
        if sum(map(is_complete, runs(lab.folder, condition))) >= most:
            print(f"{condition}: too many trials were disturbed; {most} runs are enough", flush=True)
            return
        print(f"{time.strftime('%H:%M:%S')} {condition}: {counted.line()}", flush=True)
        incomplete = [run for run in runs(lab.folder, condition) if not is_complete(run)]
        target = str(incomplete[0] if incomplete else lab.folder / "aa.yml")
        seed = [] if incomplete else ["--seed", str(counted.trials)]
        lab.command("run", target, *seed, results=condition)


def main(options: Namespace) -> int:
    """Measure what is missing and print the counts; return 1 if more is shown than promised."""
    lab = Lab(options.folder.resolve())
    lab.folder.mkdir(parents=True, exist_ok=True)
    conditions = [options.only] if options.only else list(CONDITIONS)
    if not options.report:
        content = document(options.levels, options.blocks, options.repeats)
        (lab.folder / "aa.yml").write_text(yaml.safe_dump(content, sort_keys=False))
        lab.build()
        for condition in conditions:
            if condition == "quiet":
                measure(lab, condition, options.comparisons, options.levels)
            else:
                with neighbour(seed=1):
                    measure(lab, condition, options.comparisons, options.levels)
    tallies = {condition: tally(lab.folder, condition) for condition in conditions}
    for condition, counted in tallies.items():
        print(f"{condition}: {counted.line()}")
    facts = {key: value for key, value in lab.environment.items() if key.startswith("DASKLAB_")}
    print(
        "To remove the lab:",
        *(f"{key}={json.dumps(value)}" for key, value in facts.items()),
        "dasklab destroy",
    )
    return int(any(counted.differences > max(2, counted.comparisons // 20) for counted in tallies.values()))


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
