"""From a trial's directory to its calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dasklab import record
from dasklab.breakdown.explain import explain
from dasklab.breakdown.run import Run
from dasklab.errors import LabError
from dasklab.model.files import Configured, Counters, Hosts, Measured, Probe, Timings
from dasklab.model.nic import MIB, POLICED
from dasklab.model.trial import Trial
from dasklab.notices import warn
from dasklab.predict import farm, recorded
from dasklab.predict.calibration import Calibration
from dasklab.predict.whatif import scenario
from dasklab.record import Frames
from dasklab.results.storage import store
from dasklab.results.validity.routes import cap_mbit
from dasklab.sim import build
from dasklab.sim.costs import Role
from dasklab.sim.kernel import Kernel

# Stands before a capped link while it is full, where no trial's probes said it. bbr: as pings under load
# said in containers (lab/dasklab/sim/README.md); else half of what cubic fills, set by hand.
QUEUE_BYTES = {"bbr": 87_000.0}
OTHER_QUEUE_BYTES = 131_072.0
NO_WORK = ("idle_s", "iowait_s", "steal_s")  # of what a kernel counts of its CPU time
SHORT = 0.95  # machines that were given less of what they count lacked cores
ROUNDS, COUNTED_RUNS = 3, 2  # to costs that fit the operations that they make, counted in so many timed runs
MEASURED: dict[str, Any] = {"queue_origin": "measured"}


def calibrate_each(directories: Sequence[Path]) -> dict[Path, Calibration]:
    """Return the calibrations of like trials; one that cannot be calibrated on is named and left out.

    Raises:
        LabError: none can; the first one's reason is told.
    """
    calibrations, failures = {}, []
    for directory in directories:
        try:
            calibrations[directory] = calibrate(directory)
        except LabError as error:
            failures.append(error)
    if not calibrations:
        raise failures[0]
    for failure in failures:
        warn(f"{failure.message}; no costs are taken from the trial")
    return calibrations


def calibrate(directory: Path) -> Calibration:
    """What a trial tells of its tasks, processes and network.

    Simulations count the operations that its event loops were busy with: one without costs, then with those
    that were found, for what takes longer has more heartbeats and is told in other portions. What tasks wait
    for their loops and cores in them is taken off what passed between loops and threads in the trial.

    Raises:
        LabError: the trial lacks what is needed.
    """
    trial = store.need(Trial, directory)
    if trial.faults:
        raise LabError(f"{directory}: it had faults; costs are taken from trials without")
    runs = explain(directory).timed
    if not runs:
        raise LabError(f"{directory}: of no timed run anything was recorded inside Dask")
    frames = record.load(directory)
    found = _without_costs(directory, trial, runs, frames)
    few = {"runs": min(COUNTED_RUNS, trial.runs)}
    handoff_s = recorded.handoff_s(frames)
    for _ in range(ROUNDS):
        counted = farm.simulate(scenario(trial, found, few, seed=0))
        ops: dict[Role, float] = {"scheduler": 1.0, "worker": 1.0}
        for name, count in counted.ops.items():
            role = _role(name)
            ops[role] = ops.get(role, 0.0) + count / (few["runs"] + trial.warmups)
        missing_s = max(0.0, found.handoff_s + handoff_s - counted.handoff_s)
        found = found.model_copy(update={"costs": recorded.costs(runs, ops), "handoff_s": missing_s})
    return found


def _role(name: str) -> Role:
    return "scheduler" if name == "scheduler" else "client" if name == "client" else "worker"


def _without_costs(directory: Path, trial: Trial, runs: list[Run], frames: Frames) -> Calibration:
    delivered = store.read(Measured, directory) or Measured()
    configured = store.read(Configured, directory) or Configured()
    machines = store.read(Hosts, directory)
    given = _given(machines) if machines else 1.0
    cores = _cores(machines, configured, given) if machines else None
    assumed = Calibration(
        experiment=trial.experiment,
        trial=trial.trial,
        cell=trial.cell,
        machine=machines.hypervisor.accel if machines else "unknown",
        cores=cores and recorded.cores_had(frames, runs, cores, given),
        versions=store.need(Timings, directory).versions,
        tasks=recorded.tasks(frames, given),
        shuffled_bytes=recorded.shuffled_bytes(frames),
        behind=recorded.behind(frames, sorted(runs[0].threads)),
        starved=recorded.starved(frames, given),
        costs={},
        loop_cpu=recorded.loop_cpu(frames, runs, given),
        driver_s=recorded.driver_s(runs),
        workers=trial.workers,
        threads=max(runs[0].threads.values()),
        rtt_ms=_rtt_ms(trial, delivered),
        free_mbit=_free_mbit(trial, delivered),
        burst_bytes=_burst_bytes(configured),
        queue_bytes=_queue_bytes(configured),
        queue_origin="assumed",
    )
    found = _standing_bytes(trial, delivered, assumed)
    return assumed if found is None else assumed.model_copy(update=MEASURED | {"queue_bytes": found})


def _given(machines: Hosts) -> float:
    """Of the CPU time that machines count, which share the cores of their node gave them.

    An emulated machine knows not when it stands still for others, and counts that as its own: on two cores
    five count up to five seconds each second. Containers are counted by the node's kernel itself.
    """
    counted = machines.hypervisor.cpu
    if not counted or _kinds(machines) & {"lxc"}:
        return 1.0
    theirs = sum(_worked_s(machine.cpu) for machine in machines.hosts.values())
    return min(1.0, _worked_s(counted) / theirs) if theirs else 1.0


def _worked_s(cpu: Counters) -> float:
    return sum(seconds for field, seconds in cpu.items() if field not in NO_WORK)


def _kinds(machines: Hosts) -> set[str]:
    return {machine.virtualization for machine in machines.hosts.values()}


def _cores(machines: Hosts, configured: Configured, given: float) -> int | None:
    """Those of the node that all machines shared.

    Known of containers, whose processes its kernel counts, and of machines that lacked them.
    """
    counted = machines.hypervisor.cpu
    nodes = {host.node for host in configured.hosts.values()}
    if not counted or len(nodes) != 1 or not (_kinds(machines) == {"lxc"} or given < SHORT):
        return None
    seconds = median(machine.seconds for machine in machines.hosts.values())
    return max(1, round(sum(counted.values()) / seconds))


def _rtt_ms(trial: Trial, delivered: Measured) -> float:
    """Median round trip of the links, less the delay that was asked for."""
    samples = [
        max(0.0, sample - _delay_ms(trial, pair.src) - _delay_ms(trial, pair.dst))
        for pair in delivered.rtt
        for sample in pair.samples_ms
    ]
    return median(samples) if samples else 0.1


def _delay_ms(trial: Trial, host: str) -> float:
    """What a host's link adds to a round trip."""
    link = trial.links.get(host)
    return 0.0 if link is None else link.delay_ms * (2 if link.direction == "both" else 1)


def _free_mbit(trial: Trial, delivered: Measured) -> float:
    """Payload between hosts of which neither is limited."""
    limited = {host for host, card in trial.nics.items() if card.rate_mbit} | set(trial.links)
    found = [
        probe.mbit
        for probe in delivered.throughput
        if probe.proto == "tcp" and not {probe.src, probe.dst} & limited
    ]
    return median(found) if found else 0.0


def _standing_bytes(trial: Trial, delivered: Measured, found: Calibration) -> float | None:
    """What must stand before each full link for the model's ping under load to be as long as the measured.

    Only ways whose cap binds: elsewhere a ping waits for cores, which stay as they are when a rate changes.
    """
    asked = scenario(trial, found, seed=0).model_copy(update={"queue_bytes": 1.0})
    network = build.network(asked, Kernel())
    stands = []
    for probe in delivered.throughput:
        idle = [ms for rtt in delivered.rtt if _way(rtt) == _way(probe) for ms in rtt.samples_ms]
        cap = cap_mbit(trial, probe.src, probe.dst)
        if probe.rtt_ms and idle and cap and not 0 < found.free_mbit <= cap:
            waited_s = max(0.0, median(probe.rtt_ms) - median(idle)) / 1e3
            queues = network.path(probe.src, probe.dst).queues
            stands.append(waited_s / sum(1 / link.rate for link, _ in queues))
    return median(stands) if stands else None


def _way(probe: Probe) -> tuple[str, str]:
    return probe.src, probe.dst


def _burst_bytes(configured: Configured) -> float:
    """What a cap lets a host send at once: a policer's bucket. HTB's ceiling has one of a frame: nothing."""
    return MIB if configured.rate_method == POLICED else 0


def _queue_bytes(configured: Configured) -> float:
    control = {host.congestion_control for host in configured.hosts.values()}
    return max((QUEUE_BYTES.get(name, OTHER_QUEUE_BYTES) for name in control), default=OTHER_QUEUE_BYTES)
