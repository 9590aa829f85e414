"""The twin of a recorded cluster: a lab of as many workers with links like the recorded ones.

It replays the recorded graph. Its tasks are placeholders with the recorded CPU time, waiting time and result
bytes. What this machine cannot hold is scaled by a factor, replaced or refused, and a sentence says so.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from dasklab.errors import LabError
from dasklab.machines.inventory import new_lab
from dasklab.machines.inventory.new_lab import WorkerSize
from dasklab.model.files import Outcome
from dasklab.model.forms.number_format import format_fixed
from dasklab.predict import record
from dasklab.predict.core_waits import CoreWaits
from dasklab.predict.prediction import RunSummary, measured, summarize
from dasklab.predict.record import RecordedWork
from dasklab.predict.record_memory import HeldData, held_data
from dasklab.predict.record_simulations import RecordSimulations
from dasklab.predict.whatif import PAYLOAD
from dasklab.results.run import Run, Trial
from dasklab.sim.program import BARRIER, Program, parse_key
from dasklab.terminal import counted

WORKLOAD = "recorded"  # name of the twin's workload, and of its file
EXPERIMENT = "twin"
GUEST_BYTES = {"containers": 250e6, "machines": 1e9}  # of a guest that holds no results
USABLE = 0.8  # share of this machine's free memory
COPIES = 2  # of results: those that other workers fetched
WITHOUT_LIMIT_BYTES = 2e9  # of a worker whose record has no memory limit
MAX_CAP_MBIT = 2_000  # a cap above it holds nothing back that a guest of one machine sends
MAX_WORKERS = 99  # of an experiment
SHORT_RTT_MS = 4.0  # a shorter round trip may be work at its ends
HEAD = ("what", "repeats", "mean", "90 % of the repeats", "from the record", "moved between workers")

SOURCE = '''\
"""The program of the record {name}, with placeholder tasks. Written by `dasklab twin`."""

from _harness import Job, main
from _replay import replay
from distributed import Client

RECORD = "{identity}"
PROGRAM = """
{program}
"""


def prepare(client: Client) -> Job:
    """Return the job that replays it."""
    return replay(client, PROGRAM)


if __name__ == "__main__":
    main(prepare)
'''

_RECORD = re.compile(r'^RECORD = "[0-9.]+"$', re.M)


@dataclass(frozen=True)
class Machine:
    """The machine that carries the lab: its cores and its free memory."""

    cores: int
    memory_bytes: float

    @classmethod
    def this(cls) -> Machine:
        facts = Path("/proc/meminfo")
        available = (
            re.search(r"^MemAvailable: +(\d+) kB$", facts.read_text(encoding="utf-8"), re.M)
            if facts.exists()
            else None
        )
        if not available:
            raise LabError("a twin needs Linux: this machine does not say how much memory is free")
        return cls(os.cpu_count() or 1, 1024.0 * int(available[1]))


@dataclass(frozen=True)
class Twin:
    """A record's lab, by a machine that carries it.

    Attributes:
        kind: of its guests, ``containers`` or ``machines``.
    """

    work: RecordedWork
    machine: Machine
    kind: str

    def __post_init__(self) -> None:
        """Refuse a record that this machine cannot carry.

        Raises:
            LabError: the message says why.
        """
        if reason := next(self._refusals(), None):
            raise LabError(
                f"{self.work.explained.trial.folder}: {reason}", "simulate it instead: dasklab whatif RECORD"
            )

    @property
    def workers(self) -> int:
        return self.work.calibration.workers

    @property
    def worker_size(self) -> WorkerSize:
        """How the inventory describes each worker."""
        threads = self.work.calibration.threads
        memory_bytes = min(self._recorded_limit, GUEST_BYTES[self.kind] + self._room_bytes / self.workers)
        return WorkerSize(self.workers, threads, min(threads, self.machine.cores), int(memory_bytes / 1e6))

    @property
    def source(self) -> str:
        """The Python source of the workload that replays the program."""
        program = self._program
        content = program.model_dump() | {"keys": [*map(parse_key, program.keys)]}
        packed = base64.b64encode(zlib.compress(json.dumps(content).encode(), 9)).decode()
        lines = "\n".join(packed[at : at + 100] for at in range(0, len(packed), 100))
        name = self.work.explained.trial.folder.name.replace("\\", "").replace('"', "")
        return SOURCE.format(name=name, identity=identity(self.work), program=lines)

    @property
    def experiment(self) -> dict[str, Any]:
        """The content of the experiment's file."""
        content: dict[str, Any] = {
            "title": f"Twin of {self.work.explained.trial.folder.name}",
            "question": f"Does its graph take {self.work.measured_s:.2f} s here, too?",
            "metrics": {"compute_s": None, "transfer_mb": None},
            "workload": {"name": WORKLOAD},
            "workers": self.workers,
            "nics": self._nics,
            "links": self._links,
            "dask": self.work.dask,
            "repeats": 3,
            "warmups": 1,
            "blocks": 2,
            "repeat_s": round(self.work.measured_s, 1) or 0.1,
        }
        return {key: value for key, value in content.items() if value != {}}

    @property
    def summary(self) -> str:
        """The twin's size and work, in a sentence."""
        size, tasks = self.worker_size, sum(map(len, self._program.works))
        return (
            f"{counted(size.workers, 'worker')} with {counted(size.threads, 'thread')} each,"
            f" {counted(tasks, 'task')}; the record took {self.work.measured_s:.2f} s."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each thing that the twin has otherwise than the recorded cluster."""
        return tuple(self._notes())

    # --- what this machine can hold -------------------------------------------------------------------------

    @cached_property
    def _data(self) -> HeldData:
        return held_data(self.work.explained.facts.memory, self.work.repeat.start, self.work.repeat.stop)

    @property
    def _recorded_limit(self) -> float:
        return self._data.limit if math.isfinite(self._data.limit) else WITHOUT_LIMIT_BYTES

    @property
    def _guests_bytes(self) -> float:
        """What workers, scheduler and client take without any result."""
        return (self.workers + 2) * GUEST_BYTES[self.kind]

    @property
    def _room_bytes(self) -> float:
        """What is left for results."""
        return self.machine.memory_bytes * USABLE - self._guests_bytes

    @property
    def _factor(self) -> int:
        """What sizes of results, and rates with them, are divided by."""
        return max(1, math.ceil(COPIES * self._data.most / self._room_bytes))

    @property
    def _computing_cores(self) -> float:
        """How many cores the tasks computed on while all threads were busy."""
        tasks = self.work.calibration.tasks.values()
        total_s = sum(seconds for own in tasks for seconds, _ in own.samples)
        cpu_s = sum(own.cpu_share * seconds for own in tasks for seconds, _ in own.samples)
        threads = self.workers * self.work.calibration.threads
        return threads * cpu_s / total_s if total_s else 0.0

    @property
    def _computes(self) -> bool:
        return self._computing_cores <= self.machine.cores

    def _refusals(self) -> Iterator[str]:
        """Yield why there is no twin here."""
        threads = sorted(set(self.work.repeat.threads.values()))
        if len(threads) > 1:
            numbers = ", ".join(map(str, threads))
            yield f"its workers had different numbers of threads ({numbers}); a twin's have all the same"
        if any(key.startswith(BARRIER) for key in self.work.client_program.program.keys):
            yield "peer-to-peer shuffles cannot be replayed with placeholder tasks"
        if self.workers > MAX_WORKERS:
            yield f"it has {self.workers} workers, and a lab at most {MAX_WORKERS}"
        if self._room_bytes <= 0:
            yield (
                f"{counted(self.workers, 'worker')} as {self.kind} need {self._guests_bytes / 1e9:.1f} GB,"
                f" and this machine can give {self.machine.memory_bytes * USABLE / 1e9:.1f} GB"
            )
        elif self._factor > 1 and not self.work.calibration.uncapped_mbit:
            yield (
                f"its {self._data.most / 1e9:.3g} GB of results do not fit into this machine, and cannot be"
                " scaled, because the record does not show the rate of its links"
            )

    # --- what the twin has ----------------------------------------------------------------------------------

    @property
    def _program(self) -> Program:
        """The program with what each placeholder does here."""
        program = self.work.client_program.program
        if self._computes:
            # Waiting for a core is left out of durations: this machine's cores are waited for as well
            waiting = CoreWaits(self.work.calibration, cores=None, cores_each=1, starved=None)
            program = record.with_works(program, self.work.calibration, waiting, worker_speed=1)
        works = tuple(
            tuple((cpu_s, wait_s, nbytes // self._factor) for cpu_s, wait_s, nbytes in own)
            for own in program.works
        )
        return program.model_copy(update={"works": works})

    @property
    def _nics(self) -> dict[str, dict[str, float]]:
        rates = {
            "cluster": self.work.calibration.uncapped_mbit / self._factor,
            "client": self.work.client_link.mbit / self._factor,
        }
        return {
            host: {"rate_mbit": round(rate / PAYLOAD, 1)}
            for host, rate in rates.items()
            if 0 < rate <= MAX_CAP_MBIT
        }

    @property
    def _links(self) -> dict[str, dict[str, float]]:
        """Each guest delays what it sends, so that round trips take as long as recorded."""
        if self.work.repeat.on_loopback:
            return {}
        rtt_ms = self.work.calibration.rtt_ms
        cluster_ms = rtt_ms / 2 if rtt_ms >= SHORT_RTT_MS else 0.0
        client_ms = self.work.client_link.rtt_ms - cluster_ms
        delays = {"cluster": cluster_ms, "client": client_ms if client_ms >= SHORT_RTT_MS else 0.0}
        return {host: {"delay_ms": round(delay_ms, 1)} for host, delay_ms in delays.items() if delay_ms}

    def _notes(self) -> Iterator[str]:
        rate = self.work.calibration.uncapped_mbit
        if self._factor > 1:
            yield (
                f"Sizes of results and rates of links are divided by {self._factor}: the workers held"
                f" {self._data.most / 1e9:.3g} GB, which do not fit into this machine."
            )
        if not self._computes:
            yield (
                f"Tasks wait instead of computing: they computed on {self._computing_cores:.1f} cores at"
                f" once, and this machine has {self.machine.cores}."
            )
        if not rate:
            yield "Links have no cap: hardly any data moved, so the record does not show their rate."
        elif "cluster" not in self._nics:
            yield f"Links have no cap: those of the record showed {rate:.0f} Mbit/s."
        if self._links:
            delays = ", ".join(f"{host} {link['delay_ms']} ms" for host, link in self._links.items())
            yield f"Links delay what they send ({delays}), which needs a kernel with netem."
        if self.worker_size.memory_mb < int(self._recorded_limit / 1e6):
            yield (
                f"A worker has {self.worker_size.memory_mb / 1e3:.1f} GB of memory instead of"
                f" {self._recorded_limit / 1e9:.1f} GB."
            )
        yield from self.work.limits


def identity(work: RecordedWork) -> str:
    """Return what a twin's source calls its record by: the moment of the block."""
    return f"{work.repeat.start:.6f}"


# --- the files, and what was measured -----------------------------------------------------------------------


def write(twin: Twin, folder: Path) -> None:
    """Write the lab of a twin into a new folder: inventory, experiment and workload.

    Raises:
        LabError: the folder is not empty, or its name cannot be a lab's name.
    """
    head = f"# Replays the record {twin.work.explained.trial.folder.name}. Written by `dasklab twin`.\n"
    text = head + yaml.safe_dump(twin.experiment, sort_keys=False)
    new_lab.create(
        folder, twin.kind, twin.worker_size, {f"{EXPERIMENT}.yml": text, f"{WORKLOAD}.py": twin.source}
    )


@dataclass(frozen=True)
class TwinComparison:
    """A record, its simulation without a change, and its twin, side by side."""

    record: RunSummary
    simulation: RunSummary
    twin: RunSummary

    @property
    def sentence(self) -> str:
        """How far the twin and the simulation are from the record."""
        return (
            f"The twin took {self.twin.mean_s:.2f} s (mean of {counted(self.twin.repeats, 'repeat')}),"
            f" {self._than(self.twin)} the record ({self.record.mean_s:.2f} s)."
            f" The record's simulation took {self.simulation.mean_s:.2f} s,"
            f" {self._than(self.simulation)} the record."
        )

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table below ``HEAD``, as texts."""
        return [
            (
                row.what,
                str(row.repeats),
                f"{row.mean_s:.2f} s",
                f"{row.low_s:.2f} to {row.high_s:.2f} s" if row.repeats > 1 else "",
                "" if row is self.record else f"{format_fixed(self._change_pct(row), 0, '+')} %",
                f"{row.transfer_bytes / 1e6:.0f} MB",
            )
            for row in (self.record, self.simulation, self.twin)
        ]

    def _change_pct(self, row: RunSummary) -> float:
        return 100 * (row.mean_s / self.record.mean_s - 1)

    def _than(self, row: RunSummary) -> str:
        change = round(self._change_pct(row))
        return f"{abs(change)} % {'more' if change > 0 else 'less'} than" if change else "as long as"


def replays_record(run: Run) -> bool:
    """Whether this is a run of a twin. Which record it replays, it names by its moment only."""
    return any(_RECORD.search(trial.requested.workload.source or "") for trial in run.trials)


def compare(
    record_trial: Trial,
    run: Run,
    seeds: Iterable[int],
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> TwinComparison:
    """Put a record, its simulation and the measured trials of its twin's baseline side by side.

    Raises:
        LabError: the run is not of this record's twin, or has no valid trial.
    """
    work = record.read(record_trial)
    replays = f'RECORD = "{identity(work)}"'
    trials = [
        trial
        for trial in run.trials
        if (not run.is_experiment or trial.requested.baseline or trial.requested.null)
        and replays in (trial.requested.workload.source or "")
    ]
    if not trials:
        raise LabError(f"{run}: it is no run of a twin of {record_trial.folder}")
    valid = [trial for trial in trials if trial.is_valid]
    if not valid:
        raise LabError(f"{run}: no trial of the twin's baseline is valid")
    simulations = RecordSimulations.start(work, seeds, on_outcome)
    return TwinComparison(
        record=summarize("record", [work.measured_s], [work.moved_bytes], simulated=False),
        simulation=replace(simulations.unchanged, what="record, simulated"),
        twin=replace(measured(valid), what="twin"),
    )
