"""From a scenario to its kernel, network and machines."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dasklab.errors import LabError
from dasklab.model.link import Link as Impairment
from dasklab.model.nic import BYTES_PER_MBIT
from dasklab.model.simulated import unmodelled_link
from dasklab.sim.kernel import Host, Kernel
from dasklab.sim.network import Network, Port, Rack
from dasklab.sim.network.fluid import Link
from dasklab.sim.network.network import NO_LIMIT
from dasklab.sim.scenario import Record, Scenario

if TYPE_CHECKING:
    from dasklab.sim.cluster.tasks import Draw


def network(scenario: Scenario, kernel: Kernel) -> Network:
    """The ports of all machines on their bridge."""
    racks = _racks(scenario)
    names = ("scheduler", "client", *scenario.worker_names)
    ports = {name: _port(scenario, name, racks.get(name)) for name in names}
    return Network(kernel, ports, scenario.rtt_ms / 1e3, flooding=scenario.bridge == "flooding")


def _racks(scenario: Scenario) -> dict[str, Rack]:
    """Who stands in which rack; scheduler and client stand in none: next to the way between the racks."""
    found: dict[str, Rack] = {}
    left = list(scenario.worker_names)
    for site in scenario.racks:
        rack = Rack(Link(_bytes(site.rate_mbit)), Link(_bytes(site.rate_mbit)), site.delay_ms / 1e3)
        found |= dict.fromkeys(left[: site.workers], rack)
        left = left[site.workers :]
    if scenario.racks and left:
        raise LabError(f"racks: they hold {len(found)} workers, there are {scenario.workers}")
    return found


def _port(scenario: Scenario, name: str, rack: Rack | None) -> Port:
    asked = scenario.links.get(name, Impairment())
    for reason in unmodelled_link(name, asked):
        raise LabError(reason)
    rate = _bytes(scenario.rates_mbit.get(name, 0))
    sent, received = (asked.direction in (way, "both") for way in ("egress", "ingress"))
    shaped = _bytes(asked.rate_mbit)

    def link(impaired: bool, burst: float = 0.0) -> Link:
        return Link(shaped) if impaired and shaped < rate else Link(rate, burst)

    return Port(
        link(sent, scenario.burst_bytes),
        link(received),
        delay_s=asked.delay_ms / 1e3 * sent,
        jitter_s=asked.jitter_ms / 1e3 * sent,
        loss=asked.loss_pct / 100 * sent,
        received_delay_s=asked.delay_ms / 1e3 * received,
        received_jitter_s=asked.jitter_ms / 1e3 * received,
        received_loss=asked.loss_pct / 100 * received,
        queue_bytes=scenario.queue_bytes,
        rack=rack,
    )


def _bytes(mbit: float) -> float:
    return mbit * BYTES_PER_MBIT if mbit else NO_LIMIT


def hosts(scenario: Scenario, kernel: Kernel) -> dict[str, Host]:
    """Machine -> where it runs."""
    names = ("scheduler", "client", *scenario.worker_names)
    if scenario.cores is not None:
        return dict.fromkeys(names, Host(kernel, scenario.cores))
    return {name: Host(kernel, scenario.cores_each) for name in names}


def late_s(scenario: Scenario) -> dict[str, float]:
    """Worker -> how much longer its first task takes."""
    known = scenario.late_s
    return {name: known[min(at, len(known) - 1)] for at, name in enumerate(scenario.worker_names) if known}


def draw(scenario: Scenario, unknown: dict[str, None]) -> Draw:
    """What a task does: one of its prefix's records, by seed and key; of all records if it has none."""
    from dasklab.sim.cluster.tasks import Work

    every: tuple[Record, ...] = tuple(record for records in scenario.tasks.values() for record in records)

    def choose(key: str, prefix: str) -> Work:
        records = scenario.tasks.get(prefix)
        if records is None:
            unknown[prefix] = None
        return Work(*Random(f"{scenario.seed} {key}").choice(records or every))

    return choose
