"""Build the parts of a simulation from its scenario: network, hosts, and what tasks do."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from dasklab.errors import LabError
from dasklab.model.settings.link import Link
from dasklab.model.settings.nic import BYTES_PER_MBIT
from dasklab.model.settings.simulated import unmodelled_link
from dasklab.sim.kernel import Host, Kernel
from dasklab.sim.network import Network, Port, Rack
from dasklab.sim.network.fluid import Pipe
from dasklab.sim.network.network import NO_LIMIT
from dasklab.sim.program import Program, Record
from dasklab.sim.scenario import Scenario

if TYPE_CHECKING:
    from dasklab.sim.cluster.tasks import Draw


def network(scenario: Scenario, kernel: Kernel) -> Network:
    """Build the bridge and the ports of all machines.

    Raises:
        LabError: a link has a setting that is not simulated.
    """
    racks = _racks(scenario)
    ports = {name: _port(scenario, name, racks.get(name)) for name in scenario.machines}
    return Network(kernel, ports, scenario.rtt_ms / 1e3, flooding=scenario.bridge == "flooding")


def hosts(scenario: Scenario, kernel: Kernel) -> dict[str, Host]:
    """Return the cores that each machine runs on."""
    if scenario.cores is not None:
        return dict.fromkeys(scenario.machines, Host(kernel, scenario.cores))
    return {name: Host(kernel, scenario.cores_each) for name in scenario.machines}


def late_s(scenario: Scenario) -> dict[str, float]:
    """Return how much longer each worker's first task takes."""
    late = scenario.late_s
    return {name: late[min(at, len(late) - 1)] for at, name in enumerate(scenario.worker_names) if late}


def draw(scenario: Scenario, unknown: dict[str, None]) -> Draw:
    """Return the function that draws what a task does, by seed and key.

    A task gets one of the records of its prefix. A prefix without records is added to ``unknown``, and its
    tasks get one of all records. The tasks of a program have the records of their keys, one after the other;
    a key that is computed more often has its last one again.
    """
    from dasklab.sim.cluster.tasks import Work

    if isinstance(scenario.workload, Program):
        program = scenario.workload
        own = {key: deque(works) for key, works in zip(program.keys, program.works, strict=True)}

        def take(key: str, _: str) -> Work:
            works = own[key]
            return Work(*(works.popleft() if len(works) > 1 else works[0]))

        return take

    all_records: tuple[Record, ...] = tuple(
        record for records in scenario.tasks.values() for record in records
    )

    def choose(key: str, prefix: str) -> Work:
        records = scenario.tasks.get(prefix)
        if records is None:
            unknown[prefix] = None
        return Work(*Random(f"{scenario.seed} {key}").choice(records or all_records))

    return choose


def _racks(scenario: Scenario) -> dict[str, Rack]:
    """Return each worker's rack. Scheduler and client are in none: they stand between the racks."""
    racks: dict[str, Rack] = {}
    remaining = list(scenario.worker_names)
    for site in scenario.racks:
        rate = _bytes_per_s(site.rate_mbit)
        rack = Rack(Pipe(rate), Pipe(rate), site.delay_ms / 1e3)
        racks |= dict.fromkeys(remaining[: site.workers], rack)
        remaining = remaining[site.workers :]
    return racks


def _port(scenario: Scenario, name: str, rack: Rack | None) -> Port:
    link = scenario.links.get(name, Link())
    for reason in unmodelled_link(name, link):
        raise LabError(reason)
    rate, shaped = _bytes_per_s(scenario.rates_mbit.get(name, 0)), _bytes_per_s(link.rate_mbit)
    egress, ingress = (link.direction in (direction, "both") for direction in ("egress", "ingress"))

    def pipe(impaired: bool, burst: float = 0.0) -> Pipe:
        return Pipe(shaped) if impaired and shaped < rate else Pipe(rate, burst)

    return Port(
        pipe(egress, scenario.burst_bytes),
        pipe(ingress),
        delay_s=link.delay_ms / 1e3 * egress,
        jitter_s=link.jitter_ms / 1e3 * egress,
        loss=link.loss_pct / 100 * egress,
        received_delay_s=link.delay_ms / 1e3 * ingress,
        received_jitter_s=link.jitter_ms / 1e3 * ingress,
        received_loss=link.loss_pct / 100 * ingress,
        queue_bytes=scenario.queue_bytes,
        rack=rack,
    )


def _bytes_per_s(mbit: float) -> float:
    return mbit * BYTES_PER_MBIT if mbit else NO_LIMIT
