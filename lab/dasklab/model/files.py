"""The files between the steps: a type for each JSON file of a run's directory and of its trials'.

Who writes one, who reads one and the tests' stand-in for a lab all use these types. Units are in the names;
what nobody told is null. ``trial.json`` is ``dasklab.model.trial.Trial``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from dasklab.model.document import Document
from dasklab.model.strict import Strict
from dasklab.model.trial import Setup

Phase = Literal["before", "after"]
Counters = dict[str, float]
Amount = Annotated[float, Field(ge=0)]  # seconds, bytes, shares: a negative one was never measured
Count = Annotated[int, Field(ge=0)]
Status = Literal["ok", "invalid", "unsupported", "failed"]
AGAIN = "again: "  # so begins, among a failed trial's reasons, the command that does it once more


class Campaign(Document):
    """What one execution of an experiment was begun with: its form, and the lab as it was."""

    FILE: ClassVar[str] = "experiment.json"

    name: str
    quick: bool
    seed: int
    only: str | None
    order: tuple[str, ...]
    git_revision: str | None
    setup: Setup
    experiment: dict[str, Any]


# --- timings.json: written by a workload -------------------------------------------------------------------


class Pause(Strict):
    """A process of the cluster, or the client, did not run for a while: ``workloads/_pulse.py``.

    ``cpu_s`` and ``waited_s`` are the CPU seconds that it used and waited for meanwhile, ``suspended_s``
    for how long its machine was suspended.
    """

    process: str
    lasted_s: float
    cpu_s: float
    waited_s: float
    suspended_s: float


class Sample(Strict):
    """One run of the workload; ``transfer_bytes``: data that workers were asked for meanwhile.

    A simulated one computes nothing, so it has ``got`` no answer; its seconds are virtual ones.
    """

    run: Count
    warmup: bool
    start: Amount
    stop: Amount
    duration_s: Amount
    transfer_bytes: Count | None = None
    scheduler_cpu_s: Amount | None = None
    got: float | None = None
    ok: bool
    pauses: tuple[Pause, ...] = ()

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if self.stop < self.start:
            raise ValueError(f"it stops at {self.stop}, before it starts at {self.start}")
        return self


class Check(Strict):
    """Was the workload's answer right?"""

    expected: float
    got: float
    tolerance: Amount
    ok: bool


class Process(Strict):
    """A worker as it runs. A host's share its address, and zero workers, which compute nothing, a process."""

    host: str
    pid: Count
    threads: Count
    zero: bool = False


class Seated(Strict):
    """What runs as the scheduler; ``placement`` is the module that chooses a worker for a task."""

    command: str
    loop: str
    placement: str


class Cluster(Strict):
    """Who computed."""

    workers: Count
    threads: Count
    addresses: dict[str, str]
    processes: dict[str, Process] = {}
    scheduler: Seated | None = None

    @property
    def hosts(self) -> int:
        """On how many hosts workers are; where nobody said it, each is one's only."""
        return len({process.host for process in self.processes.values()}) or self.workers

    @property
    def names(self) -> dict[str, str]:
        """Hosts' names by their address without a port: several workers of one have its name and a number."""
        found: dict[str, list[str]] = {}
        for name, address in self.addresses.items():
            found.setdefault(address.removeprefix("tcp://").rpartition(":")[0], []).append(name)
        alone = {host: names[0] for host, names in found.items() if len(names) == 1}
        return {host: names[0].rpartition("-")[0] or names[0] for host, names in found.items()} | alone


class Timings(Document):
    """A workload's runs; ``tasks``: how many one run has, where that is the question. Who simulates has no
    answer to ``check``.

    ``config`` is what client, scheduler and workers run with, of Dask's settings that were asked for, and
    ``packages`` the versions of those packages.
    """

    FILE: ClassVar[str] = "timings.json"

    workload: str
    params: dict[str, Any]
    tasks: Count | None
    samples: tuple[Sample, ...]
    check: Check | None = None
    cluster: Cluster
    config: dict[str, dict[str, Any]] = {}
    packages: dict[str, dict[str, str]] = {}
    versions: dict[str, str]

    @property
    def timed(self) -> list[Sample]:
        """The runs that count: all but the warm-ups."""
        return [sample for sample in self.samples if not sample.warmup]


# --- delivered.json: what probes measured ------------------------------------------------------------------


class Pair(Strict):
    """Between whom, and before or after the runs."""

    src: str
    dst: str
    phase: Phase


class Rtt(Pair):
    """Pings; the lost ones are missing in the samples."""

    sent: Count
    samples_ms: tuple[Amount, ...]


class Throughput(Pair):
    """One run of iperf3, as its receiver saw it; ``rtt_ms``: pings on the same way meanwhile, with TCP."""

    proto: Literal["tcp", "udp"]
    mbit: Amount
    seconds: Amount
    retransmits: Count | None = None
    lost_pct: Amount | None = None
    frames: Count | None = None
    rtt_ms: tuple[Amount, ...] = ()


class ProbeError(Pair):
    """A probe that did not get through."""

    proto: Literal["tcp", "udp"]
    error: str


class Delivered(Document):
    """What the links delivered."""

    FILE: ClassVar[str] = "delivered.json"

    rtt: tuple[Rtt, ...] = ()
    throughput: tuple[Throughput, ...] = ()
    errors: tuple[ProbeError, ...] = ()


# --- configured.json: what the tools read back -------------------------------------------------------------


class Queue(Strict):
    """A queue discipline, as ``tc -s -j qdisc show`` tells it."""

    model_config = ConfigDict(extra="allow")

    kind: str
    dev: str | None = None
    parent: str = "root"
    packets: Count = 0
    drops: Count = 0
    options: dict[str, Any] = {}


class Impaired(Strict):
    """A queue or policer that the guest's kernel has; its amounts are those of ``dasklab.model.impairments``.

    ``by`` is what the kernel does it with: netem, tbf or police.
    """

    model_config = ConfigDict(extra="allow")

    direction: Literal["egress", "ingress"]
    peer: str | None
    policer: bool
    by: str | None = None

    def amount(self, key: str) -> float:
        """The amount of one impairment."""
        return float((self.model_extra or {})[key])


class ConfiguredHost(Strict):
    """One host's lab link; ``net`` is the hypervisor's line for its NIC, ``node`` the one that it is on."""

    interface: str
    driver: str
    mtu: Count
    offloads: dict[str, bool]
    congestion_control: str
    link: tuple[Impaired, ...] = ()
    qdisc_before: tuple[Queue, ...] = ()
    qdisc_after: tuple[Queue, ...] = ()
    net: str | None = None
    node: str | None = None


class Bridge(Strict):
    """The lab bridge on its node."""

    name: str
    ageing_s: Amount


class Configured(Document):
    """What is set, as hypervisor, node and guests say it."""

    FILE: ClassVar[str] = "configured.json"

    hosts: dict[str, ConfiguredHost] = {}
    bridge: Bridge | None = None
    rate_method: str | None = None


# --- faults.json: what went wrong as asked -----------------------------------------------------------------


class Seen(Strict):
    """One host's fault: seconds after the first timed run began, and until it was over; null did not happen.

    ``found`` is what the link or the service was meanwhile.
    """

    at_s: Amount | None
    lasted_s: Amount | None
    found: str


class Faults(Document):
    """The faults of a trial, by host."""

    FILE: ClassVar[str] = "faults.json"

    hosts: dict[str, Seen] = {}


# --- hosts.json: the machines ------------------------------------------------------------------------------


class Machine(Strict):
    """What a machine is, and what its kernel counted between the looks before and after the runs."""

    kernel: str
    os: str
    virtualization: str
    cpus: Count
    memory_mb: Count
    congestion_control: str
    versions: dict[str, str]
    clock_ahead_at_most_s: float | None
    seconds: Amount
    cpu: Counters
    tcp: Counters
    softnet_dropped: float
    lab_statistics: Counters


class Hypervisor(Strict):
    """Who carries the machines: ``accel`` is kvm or tcg, or what else the guests call it.

    ``lab_cpu_s`` is what the lab's own guests and processes took of ``cpu``, ``waited_pct`` the share of the
    time in which anything on the node waited for memory or a disk.
    """

    name: str | None
    accel: str
    cpu: Counters | None = None
    lab_cpu_s: float | None = None
    waited_pct: Counters = {}

    @property
    def foreign_pct(self) -> float | None:
        """The share of the node's CPU time that others than the lab used during the runs, if it is known."""
        if not self.cpu or self.lab_cpu_s is None:
            return None
        used = sum(self.cpu[field] for field in ("user_s", "nice_s", "system_s"))
        return 100 * max(0.0, used - self.lab_cpu_s) / sum(self.cpu.values())

    def share_pct(self, field: str) -> float | None:
        """The share of the node's CPU time during the runs in this field of /proc/stat, if it is known."""
        total = sum(self.cpu.values()) if self.cpu else 0
        return 100 * self.cpu[field] / total if self.cpu and field in self.cpu and total > 0 else None


class Machines(Document):
    """All machines of the lab."""

    FILE: ClassVar[str] = "hosts.json"

    hosts: dict[str, Machine] = {}
    hypervisor: Hypervisor


# --- capture.json: what tcpdump and the kernel said of a capture -------------------------------------------


class Tier(Strict):
    """One tcpdump: its file, filter and snaplen, and its own counters."""

    name: str
    file: str
    filter: str
    snaplen_bytes: Count
    frames: Count | None
    received: Count | None
    dropped_kernel: Count | None
    dropped_interface: Count | None
    left_behind: int | None
    bytes: Count


class CaptureReport(Document):
    """A capture's counters; ``timings`` are the runs that were captured."""

    FILE: ClassVar[str] = "capture.json"

    interface: str
    driver: str
    promiscuity: Count
    start: Amount
    stop: Amount
    expired: bool
    snaplen: Count
    filter: str
    frames: Count | None
    dropped_kernel: Count | None
    dropped_interface: Count | None
    left_behind: int | None
    softnet_dropped: Count
    nic_statistics: Counters
    tiers: tuple[Tier, ...]
    timings: Timings


class Completeness(Document):
    """The verdict on a capture; see ``dasklab.results.validity.completeness`` for what each number is."""

    FILE: ClassVar[str] = "completeness.json"

    verdict: Literal["complete", "lost", "blind"]
    reasons: tuple[str, ...]
    frames: Count | None
    received: Count | None
    dropped_kernel: Count | None
    dropped_interface: Count | None
    softnet_dropped: Count
    left_behind: int | None
    stream_seen: Amount | None
    lost_bytes: Count | None
    messages: Count
    decoded: Amount | None
    sent_bytes: int | None = None
    seen_bytes: Count | None = None


# --- inside.json: what Dask recorded ------------------------------------------------------------------------


class Inside(Document):
    """What scheduler and workers recorded of the runs, as it came: JSON, compressed, in base 64."""

    FILE: ClassVar[str] = "inside.json"

    records: str


class CapturedInside(Inside):
    """The same of the runs that were captured."""

    FILE: ClassVar[str] = "inside-capture.json"


# --- what the driver and the judge write -------------------------------------------------------------------


class Failed(Document):
    """Why a trial did not get through."""

    FILE: ClassVar[str] = "failed.json"

    status: Literal["failed", "unsupported"]
    host: str
    task: str
    reasons: tuple[str, ...]


class Attempt(Document):
    """What the driver saw of a trial: seconds since the epoch, the playbook's exit status, seconds spent.

    ``files`` are the documents that the trial left, so that a removed one is missed; runs of earlier versions
    have none of these names. ``suspended_s``: for how long the driver's machine was suspended meanwhile.
    """

    FILE: ClassVar[str] = "attempt.json"

    started: Amount
    exit_status: int
    wall_s: Amount
    measuring_s: Amount
    error: str | None
    files: tuple[str, ...] = ()
    suspended_s: float = 0.0


class Result(Document):
    """The verdict on one trial. Statistics are computed from the table, never stored."""

    FILE: ClassVar[str] = "result.json"

    experiment: str
    trial: str
    cell: str
    status: Status
    reasons: tuple[str, ...]
    wall_s: Amount
    measuring_s: Amount


# --- simulation.json: what came of a trial in virtual time -------------------------------------------------


class SimulatedRun(Strict):
    """One run of the workload, in virtual time."""

    warmup: bool
    duration_s: Amount
    transfer_bytes: Count


class Outcome(Strict):
    """What came of one simulation. ``digest`` is that of the log of all deliveries, ``tasks`` how many one
    run has, where that is the question.

    ``ops`` are the operations in all messages that a process wrote or read during the runs, as
    `costs.operations` counts them, ``unknown`` are prefixes of tasks that the calibration had not seen.
    ``failed`` is why it did not get through its runs, ``hung`` whether that is because they never ended;
    ``seen`` is what went wrong as asked, ``workers`` how many the scheduler had at the end. ``computed``
    tasks the workers took on during the runs, which passed ``handoff_s`` each between a loop and its thread,
    and ``scheduler_busy_s`` its event loop was busy. ``cpu_s`` and ``memory_mb`` the simulation took.
    """

    seed: int
    runs: tuple[SimulatedRun, ...]
    tasks: Count | None = None
    digest: str
    messages: Count
    ops: dict[str, Amount]
    unknown: tuple[str, ...]
    computed: Count = 0
    handoff_s: float = 0.0
    scheduler_busy_s: Amount = 0.0
    cpu_s: Amount
    memory_mb: Amount = 0.0
    failed: str | None = None
    hung: bool = False
    seen: dict[str, Seen] = {}
    workers: int | None = None


class Simulation(Document):
    """Of a simulated trial: what came of each seed."""

    FILE: ClassVar[str] = "simulation.json"

    outcomes: tuple[Outcome, ...]
