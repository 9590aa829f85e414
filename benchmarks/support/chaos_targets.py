"""What ``chaos.py`` strikes: a lab of containers, and a Dask cluster whose records are made and read."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.paths import SHARE as ROOT
from dasklab.records.document import read_document
from dasklab.records.recorder.base import NAME
from distributed import Client, Future

from benchmarks.support.chaos_bench import (
    KILLS,
    LIMIT_S,
    SETTLE_S,
    VICTIMS,
    Bench,
    Outcome,
    Round,
    processes,
    until,
    wait,
)
from tests.unit.dasklab.stored_run import previous_run

EXPERIMENT = """
title: Chaos
question: Does a run survive the death of its processes?
metrics: {compute_s: ~}
factors:
  rate_mbit: {sets: nics.worker-1.rate_mbit, levels: [0]}
workload: {name: array_study, params: {size: 1000, chunk: 250}}
repeats: 3
warmups: 1
blocks: 1
probes: {pings: 3, iperf_runs: 1, iperf_s: 1}
repeat_s: 1
ttl_s: 120
tolerances: {foreign_pct: 100} # other work on this machine does not matter here
"""
TRIALS = 2  # of the experiment: the baseline and the null trial
DOCUMENTS = ("trial.json", "attempt.json", "configured.json", "measured.json", "timings.json", "hosts.json")
PROGRAM = """
import sys, time
import dasklab
from distributed import Client

def task(number):
    time.sleep(0.02)
    return number + 1

client = Client(sys.argv[1], set_as_default=False)
with dasklab.record(client, sys.argv[2]):
    print("sum", sum(client.gather(client.map(task, range(600), pure=False))), flush=True)
"""
WORKERS = 2
CANNOT_DECIDE = (3, 4)  # exit statuses of `dasklab check`: damaged, or not decidable
BUSY = "another command is using this lab"
PORT = 8786
RECORD_S = 4
NEW_FOLDER = ("twin", "record", "program")  # they refuse a folder that is not empty
AGAIN = 500  # the number of their second folder is so much higher
# How long the others work, roughly, as a share of what `up` takes.
OF_UP = {"configure": 0.3, "run": 0.4, "resume": 0.25, "destroy": 0.1}
UP = ("up", "--guests", "container")


class Lab(Bench):
    """A lab of containers, and the commands that build, use and remove it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.results = self.disk / "results"
        shutil.copytree(DEFAULT.parent, self.disk / "inventory")
        (self.disk / "chaos.yml").write_text(EXPERIMENT)
        self.measure("up")
        self.rest = self.things()
        self.hit: list[Path] = []
        self.work_s |= {command: share * self.work_s["up"] for command, share in OF_UP.items()}

    def is_up(self) -> bool:
        return (self.disk / "state").exists()

    def runs(self) -> list[Path]:
        """Return the runs of the experiment, oldest first."""
        return sorted((self.results / "chaos").glob("*"))

    def unfinished(self) -> list[Path]:
        """Return the last run if a trial of it has no result."""
        return [run for run in self.runs()[-1:] if len(list(run.glob("*/result.json"))) < TRIALS]

    def prepare(self, command: str) -> None:
        """Build the lab, and interrupt a run that can be resumed."""
        if command != "up" and not self.is_up() and self.run("prepare-up.log", *UP) != 0:
            sys.exit(f"the lab cannot be built: see {self.logs / 'prepare-up.log'}")
        if command == "resume" and not self.unfinished():
            trials = self.results / "chaos"
            count = len(list(trials.glob("*/*/result.json")))
            driver = self.start("prepare-run.log", "run", "--no-wait", str(self.disk / "chaos.yml"))
            until(lambda: len(list(trials.glob("*/*/result.json"))) > count or driver.poll() is not None)
            driver.terminate()
            wait(driver)

    def words(self, plan: Round) -> list[str]:
        match plan.command:
            case "up":
                return [*UP]
            case "configure":
                return ["up", "--only", "configure"]
            case "destroy":
                return ["destroy", "--yes"]
            case "resume" if unfinished := self.unfinished():
                return ["run", "--no-wait", str(unfinished[0])]
        return ["run", "--no-wait", str(self.disk / "chaos.yml")]

    def works(self, plan: Round, child: subprocess.Popen[bytes], start_ns: int) -> bool:
        """Each command of a lab begins its work with a playbook."""
        return any(VICTIMS["playbook"].search(line) for line in processes().values())

    def close(self) -> list[str]:
        """Remove the lab. Return what is left."""
        failed = self.is_up() and self.run("999-destroy.log", "destroy", "--yes") != 0
        return ["the last `dasklab destroy` failed"] * failed + self.left()

    def trials(self) -> dict[Path, str]:
        """Return the status of every trial that has a result."""
        return {
            file.parent: json.loads(file.read_text())["status"]
            for file in sorted(self.results.glob("*/*/*/result.json"))
        }

    def kept(self) -> dict[str, str]:
        """Return a digest of each trial that is ok."""
        return {
            str(trial): digest(*(trial / name for name in ("result.json", *DOCUMENTS)))
            for trial, status in self.trials().items()
            if status == "ok"
        }

    def strike(self, plan: Round, child: subprocess.Popen[bytes], faults: list[str]) -> bool:
        """Strike, or start a second command, which must be refused. Note the trial that was hit."""
        if plan.blow.startswith("with "):
            command = plan.blow.removeprefix("with ")
            log = f"{plan.number:03}-second-{command}.log"
            status = self.run(log, *self.words(replace(plan, command=command)))
            struck = child.poll() is None or BUSY in self.text
            if struck and (status in (0, None) or BUSY not in self.text):
                faults.append(f"the second command, {command}, was not refused: exit status {status}")
        else:
            struck = super().strike(plan, child, faults)
        orders = self.results.glob("*/*/*/orders.json")
        self.hit = [file.parent for file in orders if not (file.parent / "result.json").exists()]
        return struck

    def false_claims(self, plan: Round, outcome: Outcome) -> Iterator[str]:
        """Yield trials that are ok but incomplete or disturbed, and a removed lab that is still there."""
        for trial, status in self.trials().items():
            if status == "ok":
                yield from (f"{trial}: {what}" for what in missing(trial))
                if trial in self.hit and plan.blow in ("SIGSTOP", "Dask worker", "scheduler"):
                    yield f"{trial} was disturbed"
        if plan.command == "destroy" and outcome.status == 0 and self.is_up():
            yield "the lab is still there"

    def repair(self, plan: Round, outcome: Outcome) -> Iterator[str]:
        """Run the same command again. The one after a killed run is the resume of the next round."""
        if plan.command == "run" and plan.blow in KILLS:
            return
        if plan.command == "destroy" and outcome.status == 0:
            return
        command = "resume" if plan.command == "run" else plan.command
        log = f"{plan.number:03}-next.log"
        status = self.run(log, *self.words(replace(plan, command=command)))
        if status != 0 and not (status == 4 and command == "resume"):
            yield f"the next {command} failed with {status}, see {self.logs / log}"
        changed = re.search(r"changed=(\d+), failed", self.text)
        if outcome.status == 0 and changed and int(changed[1]):
            yield f"false ok: the next {command} changed {changed[1]}"
        if command == "resume" and self.unfinished():
            yield "the resumed run is not finished"


def missing(trial: Path) -> Iterator[str]:
    """Yield what a trial that is ok lacks."""
    try:
        documents = {name: json.loads((trial / name).read_text()) for name in DOCUMENTS}
    except (OSError, ValueError) as error:
        yield f"damaged: {error}"
        return
    planned = documents["trial.json"]["repeats"] + documents["trial.json"]["warmups"]
    if len(documents["timings.json"]["samples"]) != planned:
        yield f"{len(documents['timings.json']['samples'])} of {planned} repeats"
    if documents["attempt.json"]["exit_status"] or (trial / "failed.json").exists():
        yield "ok, although it failed"


def digest(*files: Path) -> str:
    """Return a digest of files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class Cluster(Bench):
    """A Dask cluster, a stored run, a record, and the commands that need no lab."""

    goes_on = True

    def __init__(self, folder: Path, commands: set[str]) -> None:
        super().__init__(folder)
        self.stored = previous_run(self.disk / "results")
        self.recorded = shutil.copytree(ROOT / "tests/data/records/netcdf_write", self.disk / "recorded")
        self.whole = self.disk / "whole"
        (self.disk / "program.py").write_text(PROGRAM)
        self.address = f"tcp://127.0.0.1:{PORT}"  # the network is its own
        self.cluster: list[subprocess.Popen[bytes]] = []
        self.futures: list[Future] = []
        self.printed = ""
        if commands - {"report", "pack"}:
            self.complete_cluster()
            self.rest = self.things()
            work = self.work()
            if self.run("whole.log", "record", self.address, str(self.whole), "--seconds", "2") != 0:
                sys.exit(f"the cluster cannot be recorded: see {self.logs / 'whole.log'}")
            self.client.gather(work)
        self.wanted: dict[str, list[str]] = {}
        for command in sorted(commands):
            self.measure(command)
            self.printed = (self.logs / f"000-{command}.log").read_text(errors="replace")
            self.wanted[command] = self.made(Round(0, command, "", 0, 0))

    def complete_cluster(self) -> None:
        """Start what is missing of a scheduler and its workers."""
        if not self.cluster or self.cluster[0].poll() is not None:
            for process in self.cluster:
                process.kill()
                process.wait()
            words = ["scheduler", "--host", "127.0.0.1", "--port", str(PORT), "--no-dashboard"]
            self.cluster = [self.start("scheduler.log", *words, program="dask")]
            self.client = Client(self.address, timeout=LIMIT_S, set_as_default=False)
        self.cluster = [process for process in self.cluster if process.poll() is None]
        for _ in range(1 + WORKERS - len(self.cluster)):
            words = ["worker", self.address, "--no-nanny", "--nthreads", "2", "--no-dashboard"]
            self.cluster.append(self.start("workers.log", *words, program="dask"))
        self.client.wait_for_workers(WORKERS, timeout=LIMIT_S)

    def work(self) -> list[Future]:
        """Start the user's work: some 4 s on all threads."""

        def task(number):
            time.sleep(0.02)
            return number + 1

        return self.client.map(task, range(800), pure=False)

    def close(self) -> list[str]:
        """End the cluster. Return what is left."""
        while self.cluster:
            process = self.cluster.pop()
            process.kill()
            process.wait()
        return self.left()

    def is_up(self) -> bool:
        return bool(self.cluster)

    def out(self, plan: Round) -> Path:
        """Return where a round's command writes."""
        return self.disk / f"{plan.command}-{plan.number}{'.zip' if plan.command == 'pack' else ''}"

    def prepare(self, command: str) -> None:
        if self.cluster:
            self.complete_cluster()
        if command == "record":
            self.futures = self.work()

    def words(self, plan: Round) -> list[str]:
        out = str(self.out(plan))
        return {
            "report": ["report", str(self.stored), "-o", out],
            "pack": ["results", "pack", str(self.stored), "-o", out],
            "twin": ["twin", str(self.recorded), "-o", out],
            "whatif": ["whatif", str(self.recorded), "--on", self.address, "--seeds", "2", "--json"],
            "record": ["record", self.address, out, "--seconds", str(RECORD_S)],
            "program": [str(self.disk / "program.py"), self.address, out],
        }[plan.command]

    def works(self, plan: Round, child: subprocess.Popen[bytes], start_ns: int) -> bool:
        """A command works when it has read of its run or record, or written of a new one."""
        out = self.out(plan)
        if plan.command in ("record", "program"):
            return out.is_dir() and any(out.iterdir())
        source = self.stored if plan.command in ("report", "pack") else self.recorded
        return any(file.stat().st_atime_ns > start_ns for file in source.rglob("*.*") if file.is_file())

    def made(self, plan: Round) -> list[str]:
        """Return what a command has made: names of files, or of the rows that it printed."""
        out = self.out(plan)
        if plan.command == "whatif":
            return re.findall(r'^{"what": "(.*?)"', self.printed, re.MULTILINE)
        if plan.command == "pack":
            with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(out) as archive:
                return sorted(archive.namelist()) if archive.testzip() is None else []
            return []
        if plan.command in ("record", "program"):
            with suppress(OSError, LabError):
                return [str(read_document(out).complete), *re.findall("^sum .*", self.printed, re.MULTILINE)]
            return []
        return sorted(str(file.relative_to(out)) for file in out.rglob("*"))

    def false_claims(self, plan: Round, outcome: Outcome) -> Iterator[str]:
        """Yield a success without its result, and a result that is cut but counts as whole."""
        self.printed = (self.logs / f"{plan.number:03}-{plan.command}.log").read_text(errors="replace")
        output, expected = self.made(plan), self.wanted[plan.command]
        match plan.command:
            case "record" | "program":
                complete = output[:1] == ["True"]
                if outcome.status == 0 and output != expected:
                    yield f"exit status 0, but {output}"
                had_ended = plan.command == "record" and outcome.after_s > RECORD_S - 1
                killed = outcome.status != 0 and "Ctrl-C" not in plan.blow
                if complete and killed and not (had_ended or "sum " in self.printed):
                    yield f"killed after {outcome.after_s:.1f} s, but the record is complete"
                if output and not complete:
                    words = ["check", str(self.out(plan)), "--against", str(self.whole)]
                    status = self.run(f"{plan.number:03}-check.log", *words, "--allow-different-work")
                    if status not in CANNOT_DECIDE:
                        yield f"`dasklab check` of a cut record ended with {status}"
            case "pack" if self.out(plan).exists() and output != expected:
                yield "the file is there, but not whole"
            case _ if outcome.status == 0 and output != expected:
                yield f"exit status 0, but {sorted(set(expected) ^ set(output))[:3]} differ"

    def repair(self, plan: Round, outcome: Outcome) -> Iterator[str]:
        """Wait for the user's work, and run the command again: it may be needed where a killed one wrote."""
        if self.cluster and plan.blow != "scheduler":
            if plan.command == "record" and sum(self.client.gather(self.futures)) != sum(range(1, 801)):
                yield "the work of the cluster has another result"
            del self.futures[:]
            if not until(lambda: not self.attached(), SETTLE_S):
                yield f"still in the cluster after {SETTLE_S:.0f} s: {self.attached()}"
        again = replace(plan, number=plan.number + AGAIN * (plan.command in NEW_FOLDER))
        self.prepare(plan.command)
        log = f"{plan.number:03}-next.log"
        status = self.run(
            log, *self.words(again), program="python" if plan.command == "program" else "dasklab"
        )
        self.printed = self.text
        if status != 0 or self.made(again) != self.wanted[plan.command]:
            yield f"the next {plan.command} failed with {status}, see {self.logs / log}"
        self.futures = []
        for number in (plan.number, again.number):
            out = self.out(replace(plan, number=number))
            shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)

    def attached(self) -> list[str]:
        """Return what commands have left in the cluster: recorders, and tasks that nobody wants."""
        left = self.client.run_on_scheduler(
            lambda dask_scheduler: (
                [name for name in dask_scheduler.plugins if name == NAME]
                + [f"task {key}" for key in dask_scheduler.tasks]
            )
        )
        workers = self.client.run(lambda dask_worker: list(dask_worker.plugins))
        return [*left, *(address for address, plugins in workers.items() if NAME in plugins)]

    def kept(self) -> dict[str, str]:
        """Return digests of the run and the record that commands read."""
        files = [file for folder in (self.stored, self.recorded) for file in folder.rglob("*")]
        return {str(file): digest(file) for file in files if file.is_file()}
