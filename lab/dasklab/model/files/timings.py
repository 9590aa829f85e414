"""timings.json: the repeats of a workload, written by the workload itself."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator
from typing_extensions import Self

from dasklab.model.files.quantities import Amount, Count
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict


class Pause(Strict):
    """A process of the cluster, or the client, did not run for a while (``workloads/_pulse.py``).

    During the pause it used ``cpu_s`` of CPU time and waited ``waited_s`` for a CPU; its machine was
    suspended for ``suspended_s``.
    """

    process: str
    lasted_s: float
    cpu_s: float
    waited_s: float
    suspended_s: float


class Sample(Strict):
    """One repeat of the workload.

    ``transfer_bytes`` is the data that workers sent to each other, on request or in shuffles. A simulated
    repeat computes nothing: it has no ``answer``, and its times are virtual.
    """

    repeat: Count
    warmup: bool
    start: Amount
    stop: Amount
    duration_s: Amount
    transfer_bytes: Count | None = None
    scheduler_cpu_s: Amount | None = None
    answer: float | None = None
    ok: bool
    pauses: tuple[Pause, ...] = ()

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if self.stop < self.start:
            raise ValueError(f"it stops at {self.stop}, before it starts at {self.start}")
        return self


class Check(Strict):
    """Whether the workload computed the right answer."""

    expected: float
    answer: float
    tolerance: Amount
    ok: bool


class WorkerProcess(Strict):
    """A running worker. Workers that compute nothing (``zero``) share one process on each host."""

    host: str
    pid: Count
    threads: Count
    zero: bool = False


class SchedulerProcess(Strict):
    """The running scheduler; ``placement`` is the module that chooses a worker for a task."""

    command: str
    loop: str
    placement: str


class ObservedCluster(Strict):
    """The cluster that computed, as its processes describe it."""

    workers: Count
    threads: Count
    addresses: dict[str, str]
    processes: dict[str, WorkerProcess] = {}
    scheduler: SchedulerProcess | None = None

    @property
    def hosts(self) -> int:
        """The number of hosts with workers; one host per worker where the processes are not listed."""
        return len({process.host for process in self.processes.values()}) or self.workers

    @property
    def names(self) -> dict[str, str]:
        """Map addresses without port to host names. Several workers of one host are named NAME-NUMBER."""
        by_address: dict[str, list[str]] = {}
        for name, address in self.addresses.items():
            by_address.setdefault(address.removeprefix("tcp://").rpartition(":")[0], []).append(name)
        return {
            address: names[0] if len(names) == 1 else names[0].rpartition("-")[0] or names[0]
            for address, names in by_address.items()
        }


class Timings(Document):
    """The repeats of a workload. A simulated one has no answer to ``check``.

    ``tasks`` is the number of tasks in one repeat, for workloads that measure time per task. ``config`` and
    ``packages`` are read back from client, scheduler and workers: the requested settings of Dask, and the
    versions of the requested packages.
    """

    FILE: ClassVar[str] = "timings.json"

    workload: str
    params: dict[str, Any]
    tasks: Count | None
    samples: tuple[Sample, ...]
    check: Check | None = None
    cluster: ObservedCluster
    config: dict[str, dict[str, Any]] = {}
    packages: dict[str, dict[str, str]] = {}
    versions: dict[str, str]

    @property
    def timed(self) -> list[Sample]:
        """The repeats that count: all but the warm-ups."""
        return [sample for sample in self.samples if not sample.warmup]
