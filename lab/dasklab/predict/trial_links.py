"""What a trial's probes and read-back settings say of its links: round trip, rate, queue, burst."""

from __future__ import annotations

from statistics import median

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Configured, Measured, Probe
from dasklab.model.settings.nic import MIB, POLICED
from dasklab.predict.calibration import Calibration
from dasklab.predict.whatif import scenario
from dasklab.results.validity.routes import cap_mbit
from dasklab.sim import build
from dasklab.sim.kernel import Kernel

# Assumed standing queue in front of a saturated link, where no pings ran under load. bbr: from pings under
# load in containers (docs/explanation/simulation.md). Others: half of what cubic fills, set by hand.
QUEUE_BYTES = {"bbr": 87_000.0}
OTHER_QUEUE_BYTES = 131_072.0


def rtt_ms(trial: RequestedTrial, measured: Measured) -> float:
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


def uncapped_mbit(trial: RequestedTrial, measured: Measured) -> float:
    """Return the median throughput between hosts without any limit; 0 if it was not measured."""
    limited = {host for host, card in trial.nics.items() if card.rate_mbit} | set(trial.links)
    rates = [
        probe.mbit
        for probe in measured.throughput
        if probe.proto == "tcp" and not {probe.src, probe.dst} & limited
    ]
    return median(rates) if rates else 0.0


def measured_queue_bytes(trial: RequestedTrial, measured: Measured, calibration: Calibration) -> float | None:
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


def burst_bytes(configured: Configured) -> float:
    """Return what a rate cap lets a host send at once: a policer's bucket. HTB's holds one frame."""
    return MIB if configured.rate_method == POLICED else 0


def assumed_queue_bytes(configured: Configured) -> float:
    control = {host.congestion_control for host in configured.hosts.values()}
    return max((QUEUE_BYTES.get(name, OTHER_QUEUE_BYTES) for name in control), default=OTHER_QUEUE_BYTES)
