"""From a trial to its orders: what each host does in each phase. Pure.

The sequence of phases is the method of the lab:

=========================  ==============================================================================
phase                      what happens
=========================  ==============================================================================
prepare                    the bridge gets its mode, links get their impairments
probe-…-before             each host of the cluster measures the link to the next one, so that every link is
                           measured once in each direction: round trips on all at once, throughput one by one
start                      hosts describe themselves; a fresh cluster starts, faults are armed
run                        the node's counters are read; the client runs the workload
stop                       the node's counters are read again; the cluster stops, hosts report what may have
                           changed: counters and settings
probe-…-after              as before the repeats
report-…                   optional: the workload runs again on a fresh cluster, for Dask's performance report
profile-…                  optional: it runs again on a fresh cluster, and py-spy samples the processes
capture-…                  optional: it runs again on a fresh cluster, while the bridge floods. The capture
                           starts before the cluster, so it has every connection from the first segment
=========================  ==============================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dasklab.model.experiments.experiment import merge
from dasklab.model.experiments.order import GuestStep, LabHost, Order, Phase, TrialOrders
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import CAPTURE_RECORD_FOLDER, RECORD_FOLDER
from dasklab.model.settings.dask_settings import flatten
from dasklab.model.settings.variants import Layout

SCHEDULER_PORT = 8786
PROGRAMS = "/opt/dasklab/bin"
FAULT_MARGIN_S = 60  # a workload that hangs is reported before its cluster ends

TIMED_PHASES = (
    "prepare",
    "probe-rtt-before",
    "probe-throughput-before",
    "start",
    "run",
    "stop",
    "probe-rtt-after",
    "probe-throughput-after",
)
"""The phases of every trial, in their sequence; without throughput where it is not measured."""

Steps = dict[str, list[GuestStep]]


def orders(trial: RequestedTrial, hosts: Mapping[str, LabHost]) -> TrialOrders:
    """Return everything that the hosts do in a trial.

    Args:
        trial: what is requested.
        hosts: all hosts of the lab, in the inventory's order.
    """
    lab = TrialLab(trial, hosts)
    phases = [*timed_phases(lab)]
    if trial.performance_report:
        phases += report_phases(lab)
    if trial.py_spy:
        phases += profile_phases(lab)
    if trial.capture:
        phases += capture_phases(lab)
    first = phases[0]
    first_orders = {host: order.model_copy(update={"first": True}) for host, order in first.orders.items()}
    return TrialOrders(
        phases=(first.model_copy(update={"orders": first_orders}), *phases[1:]),
        guests=trial.guests,
        nics=trial.nics,
        packages=trial.environment,
        venv=lab.venv,
        spark=trial.engine == "spark",
    )


def venv_folder(pins: str, packages: Mapping[str, str]) -> str:
    """Return the folder of the virtual environment for these packages; without packages, ``pins``."""
    if not packages:
        return pins
    return f"{pins}-{hashlib.sha1(json.dumps(sorted(packages.items())).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class TrialLab:
    """A trial and the hosts that it runs on."""

    trial: RequestedTrial
    hosts: Mapping[str, LabHost]

    def names(self, role: str) -> list[str]:
        """Return the hosts with a role."""
        return [name for name, host in self.hosts.items() if host.role == role]

    @property
    def client(self) -> str:
        return self.names("client")[0]

    @property
    def cluster(self) -> list[str]:
        """The scheduler and the workers that take part."""
        return self.names("scheduler")[:1] + self.names("worker")[: self.trial.workers]

    @property
    def venv(self) -> str:
        return venv_folder(self.hosts[self.client].venv, self.trial.environment)

    @property
    def layout(self) -> Layout | None:
        """The layout that the trial requests; None for that of the inventory."""
        return Layout.parse(self.trial.layout) if self.trial.layout else None

    def processes(self, name: str) -> int:
        """Return the number of worker processes of a host."""
        return self.layout.processes if self.layout else self.hosts[name].processes

    def threads(self, name: str) -> int:
        """Return the threads of each worker process of a host; 0 for one per core."""
        return self.layout.threads if self.layout else self.hosts[name].threads

    def service(self, name: str) -> str:
        """Return the service that a host runs in a cluster; "" for none."""
        role = self.hosts[name].role
        return f"dask-{role}" if name in self.cluster else ""


def phase(name: str, steps: Steps, **options: Any) -> Phase:
    """Return a phase in which each host does its steps. A host without steps gets no order."""
    orders = {host: Order(phase=name, steps=tuple(listed)) for host, listed in steps.items() if listed}
    return Phase(name=name, orders=orders, **options)


def step(do: str, **arguments: Any) -> GuestStep:
    return GuestStep(do=do, arguments=arguments)


# --- the timed repeats -------------------------------------------------------------------------------------


def timed_phases(lab: TrialLab) -> Iterator[Phase]:
    """Yield the phases of every trial."""
    trial = lab.trial
    yield phase("prepare", {host: [impair(lab, host)] for host in lab.hosts}, bridge=trial.bridge)
    yield from probe_phases(lab, "before")
    faults = {fault.host: fault for fault in trial.faults}
    starts = {host: [step("host.describe"), *steps] for host, steps in start_steps(lab).items()}
    for host, fault in faults.items():
        request = fault.model_dump(exclude={"host"}, exclude_none=True)
        starts[host].append(
            step("fault.arm", service=f"{lab.service(host)}.service", ttl_s=trial.ttl_s, **request)
        )
    yield phase("start", starts)
    run = recorded_step(lab, trial.repeats, trial.warmups, RECORD_FOLDER, signal_faults=bool(trial.faults))
    yield phase("run", {lab.client: [run]}, look=True)
    ends = stop_steps(lab)
    for host in faults:
        ends[host].insert(0, step("fault.end"))
    for host in lab.hosts:
        ends[host].append(step("host.counters"))
    yield phase("stop", ends, look=True)
    yield from probe_phases(lab, "after")


def impair(lab: TrialLab, host: str) -> GuestStep:
    link = lab.trial.links.get(host)
    return step("link.apply", links=[link.model_dump()] if link else [], ttl_s=lab.trial.ttl_s)


def probe_phases(lab: TrialLab, when: str) -> Iterator[Phase]:
    """Yield the phases of the probes, ``before`` or ``after`` the repeats."""
    probes, targets = lab.trial.probes, probe_targets(lab)
    rtt: Steps = {
        host: [step("probe.rtt", to=targets[host], pings=probes.pings, interval_s=probes.interval_s)]
        for host in lab.hosts
    }
    if when == "before":
        serve = step("probe.serve", ttl_s=lab.trial.ttl_s)
        rtt = {host: [serve, *steps] for host, steps in rtt.items()}
    yield phase(f"probe-rtt-{when}", rtt)
    if probes.iperf_runs:
        sizes = {"runs": probes.iperf_runs, "seconds": probes.iperf_s, "udp": probes.udp}
        throughput = {host: [step("probe.throughput", to=to, **sizes)] for host, to in targets.items() if to}
        yield phase(f"probe-throughput-{when}", throughput, at_once=1)


def probe_targets(lab: TrialLab) -> dict[str, list[str]]:
    """Return the hosts that each host measures towards: the next one in a ring, and the peer of its link.

    The client is in the ring when its own link is tested.
    """
    ring = ([lab.client] if lab.client in lab.trial.tested else []) + lab.cluster
    following = dict(zip(ring, ring[1:] + ring[:1], strict=True))
    peers = {host: link.peer for host, link in lab.trial.links.items()}
    return {
        host: list(dict.fromkeys(filter(None, (following.get(host), peers.get(host))))) for host in lab.hosts
    }


def start_steps(lab: TrialLab) -> Steps:
    """Return the steps that start a fresh cluster of the trial's engine."""
    if lab.trial.engine == "spark":
        return start_spark(lab)
    return {host: [start_dask(lab, host)] for host in lab.hosts}


def start_spark(lab: TrialLab) -> Steps:
    """Return the steps that start a fresh Spark cluster."""
    from dasklab.spark import orders as spark

    settings, ttl_s = lab.trial.spark, lab.trial.ttl_s
    return {
        name: [step("spark.start", **spark.start(settings, ttl_s, host, lab.venv, name in lab.cluster))]
        for name, host in lab.hosts.items()
    }


def stop_steps(lab: TrialLab) -> Steps:
    """Return the steps that stop it."""
    stop = step("spark.stop" if lab.trial.engine == "spark" else "cluster.stop")
    return {host: [stop] for host in lab.hosts}


def start_dask(lab: TrialLab, name: str) -> GuestStep:
    """Return the step that starts a host's part of a Dask cluster."""
    trial, host = lab.trial, lab.hosts[name]
    return step(
        "cluster.start",
        settings=scheduler_settings(trial, host) if host.role == "scheduler" else trial.dask,
        service=lab.service(name),
        variables=variables(lab, name),
        ttl_s=trial.ttl_s + (FAULT_MARGIN_S if trial.faults else 0),
    )


def scheduler_settings(trial: RequestedTrial, host: LabHost) -> dict[str, Any]:
    """Return the trial's Dask settings with those of its scheduler variant."""
    scheduler = trial.resolved_scheduler
    settings = merge(trial.dask, scheduler.settings)
    if scheduler.preload:
        preload = [f"{PROGRAMS}/dasklab_{scheduler.preload}.py"]
        settings = merge(settings, {"distributed": {"scheduler": {"preload": preload}}})
    return settings


def variables(lab: TrialLab, name: str) -> dict[str, str]:
    """Return the environment of a host's service."""
    trial, host = lab.trial, lab.hosts[name]
    scheduler = trial.resolved_scheduler
    command = scheduler.command or ("" if scheduler.variant else host.scheduler_command)
    return {
        "DASKLAB_SCHEDULER": command or f"{PROGRAMS}/dasklab_scheduler",
        "DASKLAB_WORKER": trial.worker.variant,
        "DASKLAB_PROCESSES": str(lab.processes(name)),
        "DASKLAB_THREADS": str(lab.threads(name)),
        "DASKLAB_PYTHON": f"{lab.venv}/bin/python",
    }


def scheduler_url(lab: TrialLab) -> str:
    """Return where the client reaches the scheduler of the trial's engine."""
    address = lab.hosts[lab.client].scheduler_address
    if lab.trial.engine == "spark":
        from dasklab.spark import orders as spark

        return spark.master(address)
    return f"tcp://{address}:{SCHEDULER_PORT}"


def workload_step(
    lab: TrialLab,
    repeats: int,
    warmups: int,
    action: str = "run",
    signal_faults: bool = False,
    **arguments: Any,
) -> GuestStep:
    """Return the step that runs the workload on the client."""
    trial = lab.trial
    spark = trial.engine == "spark"
    workers = trial.workers * (1 if spark else lab.processes(lab.cluster[1]))
    options = ["--repeats", str(repeats), "--warmups", str(warmups), "--workers", str(workers)]
    settings = trial.spark if spark else dict(flatten(merge(trial.dask, trial.resolved_scheduler.settings)))
    if settings:
        options += ["--settings", ",".join(settings)]
    if packages := {**trial.packages, **trial.environment}:
        options += ["--packages", ",".join(packages)]
    return step(
        f"workload.{action}",
        name=trial.workload.name,
        source=trial.workload.source or "",
        scheduler=scheduler_url(lab),
        python=f"{lab.venv}/bin/python",
        engine=trial.engine,
        params=trial.workload.params,
        options=options,
        ttl_s=trial.ttl_s,
        signal_faults=signal_faults,
        **arguments,
    )


def recorded_step(lab: TrialLab, repeats: int, warmups: int, record: str, **arguments: Any) -> GuestStep:
    """Return the step that runs the workload and records the cluster, where inventory and engine allow it.

    Args:
        record: the folder of the record.
    """
    if lab.hosts[lab.client].records and lab.trial.engine == "dask":
        arguments["record"] = record
    return workload_step(lab, repeats, warmups, **arguments)


# --- clusters of their own ---------------------------------------------------------------------------------


def report_phases(lab: TrialLab) -> list[Phase]:
    """Return the phases of Dask's performance report."""
    return [
        phase("report-start", start_steps(lab)),
        phase(
            "report-run", {lab.client: [workload_step(lab, 1, 0, "report", output="performance-report.html")]}
        ),
        phase("report-stop", stop_steps(lab)),
    ]


def profile_phases(lab: TrialLab) -> list[Phase]:
    """Return the phases in which py-spy samples the scheduler and the workers."""
    starts, ends = start_steps(lab), stop_steps(lab)
    for host in lab.cluster:
        processes = lab.processes(host) if lab.hosts[host].role == "worker" else 1
        starts[host].append(
            step(
                "profile.start",
                service=f"{lab.service(host)}.service",
                program=f"{lab.venv}/bin/py-spy",
                processes=processes,
                ttl_s=lab.trial.ttl_s,
            )
        )
        ends[host].insert(0, step("profile.stop"))
    run = workload_step(lab, 1, lab.trial.warmups, output="profile-timings.json")
    return [
        phase("profile-start", starts),
        phase("profile-run", {lab.client: [run]}),
        phase("profile-stop", ends),
    ]


def capture_phases(lab: TrialLab) -> list[Phase]:
    """Return the phases of the capture.

    The capture stops after the cluster: no more frames arrive then, so that it can be complete to the last
    one.
    """
    client, ttl_s = lab.client, lab.trial.ttl_s
    repeats, output = lab.trial.captured_repeats, "capture-timings.json"
    run = recorded_step(lab, repeats, 0, CAPTURE_RECORD_FOLDER, output=output)
    return [
        phase("capture-start", {client: [step("capture.start", ttl_s=ttl_s)]}, bridge="flooding"),
        phase("capture-cluster", start_steps(lab)),
        phase("capture-run", {client: [run]}),
        phase("capture-cluster-stop", stop_steps(lab)),
        phase("capture-stop", {client: [step("capture.stop")]}),
    ]
