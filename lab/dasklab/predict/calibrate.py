"""Calibrate: derive the costs of a trial from the files in its directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from dasklab import records
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.explain import explain
from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Configured, Counters, Hosts, Measured, Probe, Timings
from dasklab.model.settings.nic import MIB, POLICED
from dasklab.notices import warn
from dasklab.predict import farm, recorded
from dasklab.predict.calibration import Calibration
from dasklab.predict.whatif import scenario
from dasklab.records import Frames
from dasklab.results import cached
from dasklab.results.run import Trial, read_document
from dasklab.results.validity.routes import cap_mbit
from dasklab.sim import build
from dasklab.sim.costs import Role
from dasklab.sim.kernel import Kernel

# Assumed standing queue in front of a saturated link, where no pings ran under load. bbr: from pings under
# load in containers (docs/explanation/simulation.md). Others: half of what cubic fills, set by hand.
QUEUE_BYTES = {"bbr": 87_000.0}
OTHER_QUEUE_BYTES = 131_072.0
NOT_WORKING = ("idle_s", "iowait_s", "steal_s")  # fields of a kernel's CPU time
SCARCE = 0.95  # machines that were granted less of the CPU time they counted had to wait for cores
ROUNDS = 3  # of fitting costs to the operations that a simulation with these costs makes
COUNTED_REPEATS = 2  # timed ones, in each of these simulations


def calibrations_of(trials: Sequence[Trial], file: Path | None = None) -> tuple[Calibration, ...]:
    """Calibrate on trials and write each calibration beside its trial; or read one from a file.

    Raises:
        LabError: there is no such file, or no trial can be calibrated on.
    """
    if file is not None:
        return (read_document(Calibration, file),)
    by_trial = calibrate_each(trials)
    for trial, calibration in by_trial.items():
        Trial(cached.writable(trial.folder)).write(calibration)
    return tuple(by_trial.values())


def calibrate_each(trials: Sequence[Trial]) -> dict[Trial, Calibration]:
    """Calibrate on equal trials. A trial that cannot be calibrated on is left out with a warning.

    Raises:
        LabError: none can be calibrated on; the reason is that of the first.
    """
    calibrations, failures = {}, []
    for trial in trials:
        try:
            calibrations[trial] = calibrate(trial)
        except LabError as error:
            failures.append(error)
    if not calibrations:
        raise failures[0]
    for failure in failures:
        warn(f"{failure.message}; no costs are taken from the trial")
    return calibrations


def calibrate(stored: Trial) -> Calibration:
    """Derive the costs of a trial.

    The records say how busy event loops were; a simulation counts the operations that they were busy with.
    The first simulation is without costs. The next ones have the costs found so far, because a repeat that
    takes longer has more heartbeats, and its messages are batched differently. The time that tasks spend in
    these simulations waiting for their event loop or a core is subtracted from the recorded handoff.

    Raises:
        LabError: the trial had faults, or lacks Dask's records.
    """
    trial = stored.requested
    if trial.faults:
        raise LabError(
            f"{stored.folder}: this trial had faults; costs can be taken from trials without faults only"
        )
    repeats = explain(stored).timed
    if not repeats:
        raise LabError(f"{stored.folder}: no Dask records were found for any timed repeat")
    frames = records.load(stored.folder)
    calibration = _without_costs(stored, repeats, frames)
    few_repeats = {"repeats": min(COUNTED_REPEATS, trial.repeats)}
    recorded_handoff_s = recorded.handoff_s(frames)
    for _ in range(ROUNDS):
        outcome = farm.simulate(scenario(trial, calibration, few_repeats, seed=0))
        ops: dict[Role, float] = {"scheduler": 1.0, "worker": 1.0}
        for name, count in outcome.ops.items():
            role = _role(name)
            ops[role] = ops.get(role, 0.0) + count / (few_repeats["repeats"] + trial.warmups)
        missing_s = max(0.0, calibration.handoff_s + recorded_handoff_s - outcome.handoff_s)
        calibration = calibration.model_copy(
            update={"costs": recorded.costs(repeats, ops), "handoff_s": missing_s}
        )
    return calibration


def _role(name: str) -> Role:
    return "scheduler" if name == "scheduler" else "client" if name == "client" else "worker"


def _without_costs(stored: Trial, repeats: list[Repeat], frames: Frames) -> Calibration:
    """Return everything of a calibration that needs no simulation."""
    trial, hosts = stored.requested, stored.hosts
    measured, configured = stored.measured or Measured(), stored.configured or Configured()
    granted = _granted(hosts) if hosts else 1.0
    cores = _shared_cores(hosts, configured, granted) if hosts else None
    calibration = Calibration(
        experiment=trial.experiment,
        trial=trial.trial,
        cell=trial.cell,
        machine=hosts.hypervisor.accel if hosts else "unknown",
        cores=cores and recorded.available_cores(frames, repeats, cores, granted),
        versions=stored.need(Timings).versions,
        tasks=recorded.task_samples(frames, granted),
        shuffled_bytes=recorded.shuffled_bytes(frames),
        behind=recorded.behind(frames, sorted(repeats[0].threads)),
        starved=recorded.starved(frames, granted),
        costs={},
        loop_cpu=recorded.loop_cpu(frames, repeats, granted),
        driver_s=recorded.driver_s(repeats),
        workers=trial.workers,
        threads=max(repeats[0].threads.values()),
        rtt_ms=_rtt_ms(trial, measured),
        uncapped_mbit=_uncapped_mbit(trial, measured),
        burst_bytes=_burst_bytes(configured),
        queue_bytes=_assumed_queue_bytes(configured),
        queue_origin="assumed",
    )
    queue_bytes = _measured_queue_bytes(trial, measured, calibration)
    if queue_bytes is None:
        return calibration
    return calibration.model_copy(update={"queue_bytes": queue_bytes, "queue_origin": "measured"})


# --- cores -------------------------------------------------------------------------------------------------


def _granted(hosts: Hosts) -> float:
    """Return the share of the CPU time that machines count which the cores of their node really gave them.

    An emulated machine does not notice when it stands still for other machines, and counts that as its own
    work: on two cores, five machines count up to five seconds each second. Containers are counted by the
    node's kernel.
    """
    node_cpu = hosts.hypervisor.cpu
    if not node_cpu or _kinds(hosts) & {"lxc"}:
        return 1.0
    counted_s = sum(_worked_s(host.cpu) for host in hosts.hosts.values())
    return min(1.0, _worked_s(node_cpu) / counted_s) if counted_s else 1.0


def _worked_s(cpu: Counters) -> float:
    return sum(seconds for field, seconds in cpu.items() if field not in NOT_WORKING)


def _kinds(hosts: Hosts) -> set[str]:
    return {host.virtualization for host in hosts.hosts.values()}


def _shared_cores(hosts: Hosts, configured: Configured, granted: float) -> int | None:
    """Return the cores of the node if all machines shared them, else None.

    They did if all are on one node, and are containers (whose processes its kernel schedules) or machines
    that had to wait for cores.
    """
    node_cpu = hosts.hypervisor.cpu
    nodes = {host.node for host in configured.hosts.values()}
    if not node_cpu or len(nodes) != 1 or not (_kinds(hosts) == {"lxc"} or granted < SCARCE):
        return None
    seconds = median(host.seconds for host in hosts.hosts.values())
    return max(1, round(sum(node_cpu.values()) / seconds))


# --- network -----------------------------------------------------------------------------------------------


def _rtt_ms(trial: RequestedTrial, measured: Measured) -> float:
    """Return the median round trip of the links without the requested delays."""
    samples = [
        max(0.0, sample - _delay_ms(trial, rtt.src) - _delay_ms(trial, rtt.dst))
        for rtt in measured.rtt
        for sample in rtt.samples_ms
    ]
    return median(samples) if samples else 0.1


def _delay_ms(trial: RequestedTrial, host: str) -> float:
    """Return what a host's link adds to a round trip."""
    link = trial.links.get(host)
    return 0.0 if link is None else link.delay_ms * (2 if link.direction == "both" else 1)


def _uncapped_mbit(trial: RequestedTrial, measured: Measured) -> float:
    """Return the median throughput between hosts without any limit; 0 if it was not measured."""
    limited = {host for host, card in trial.nics.items() if card.rate_mbit} | set(trial.links)
    rates = [
        probe.mbit
        for probe in measured.throughput
        if probe.proto == "tcp" and not {probe.src, probe.dst} & limited
    ]
    return median(rates) if rates else 0.0


def _measured_queue_bytes(
    trial: RequestedTrial, measured: Measured, calibration: Calibration
) -> float | None:
    """Return the standing queue with which the model's ping under load takes as long as the measured one.

    Only paths whose rate cap is the bottleneck count. Elsewhere a ping waits for cores, and that does not
    change with the rate.
    """
    unit_queues = scenario(trial, calibration, seed=0).model_copy(update={"queue_bytes": 1.0})
    network = build.network(unit_queues, Kernel())
    queues_bytes = []
    for probe in measured.throughput:
        idle_ms = [ms for rtt in measured.rtt if _ends(rtt) == _ends(probe) for ms in rtt.samples_ms]
        cap = cap_mbit(trial, probe.src, probe.dst)
        if probe.rtt_ms and idle_ms and cap and not 0 < calibration.uncapped_mbit <= cap:
            waited_s = max(0.0, median(probe.rtt_ms) - median(idle_ms)) / 1e3
            queues = network.path(probe.src, probe.dst).queues
            queues_bytes.append(waited_s / sum(1 / pipe.rate for pipe, _ in queues))
    return median(queues_bytes) if queues_bytes else None


def _ends(probe: Probe) -> tuple[str, str]:
    return probe.src, probe.dst


def _burst_bytes(configured: Configured) -> float:
    """Return what a rate cap lets a host send at once: a policer's bucket. HTB's holds one frame."""
    return MIB if configured.rate_method == POLICED else 0


def _assumed_queue_bytes(configured: Configured) -> float:
    control = {host.congestion_control for host in configured.hosts.values()}
    return max((QUEUE_BYTES.get(name, OTHER_QUEUE_BYTES) for name in control), default=OTHER_QUEUE_BYTES)
