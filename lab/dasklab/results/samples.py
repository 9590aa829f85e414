"""The samples of one trial: where each metric of ``dasklab.model.settings.metric`` comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dasklab.model.files import Configured, Hosts, Measured, Probe, Queue, Timings
from dasklab.model.settings.impairments import QUEUES
from dasklab.results.run import Trial

Row = dict[str, Any]  # columns of ``dasklab.model.forms.columns``; a column that is missing has its default


def samples(trial: Trial) -> Iterator[Row]:
    """Yield every sample of a trial."""
    yield from _timings(trial.timings)
    yield from _probes(trial.measured or Measured())
    yield from _drops(trial.configured or Configured())
    if trial.hosts:
        yield from _retransmissions(trial.hosts)
        yield from _node(trial.hosts)
    if trial.capture_report and trial.capture_report.frames is not None:
        yield {"metric": "frames", "value": trial.capture_report.frames}


def _timings(timings: Timings | None) -> Iterator[Row]:
    for index, repeat in enumerate(timings.samples if timings else ()):
        common: Row = {"sample": index, "warmup": repeat.warmup, "start": repeat.start}
        yield common | {"metric": "compute_s", "value": repeat.duration_s}
        if repeat.warmup and index == 0:
            yield common | {"metric": "cold_s", "value": repeat.duration_s, "warmup": False}
        if timings and timings.tasks:
            yield common | {"metric": "us_per_task", "value": 1e6 * repeat.duration_s / timings.tasks}
        if timings and timings.tasks and repeat.scheduler_cpu_s is not None:
            value = 1e6 * repeat.scheduler_cpu_s / timings.tasks
            yield common | {"metric": "scheduler_us_per_task", "value": value}
        if repeat.transfer_bytes is not None:
            yield common | {"metric": "transfer_mb", "value": repeat.transfer_bytes / 1e6}


def _probes(measured: Measured) -> Iterator[Row]:
    for rtt in measured.rtt:
        for index, value in enumerate(rtt.samples_ms):
            yield _ends(rtt) | {"metric": "rtt_ms", "sample": index, "value": value}
    for index, probe in enumerate(measured.throughput):
        tcp: dict[str, float | None] = {"throughput_mbit": probe.mbit, "retransmits": probe.retransmits}
        udp: dict[str, float | None] = {"udp_mbit": probe.mbit, "udp_lost_pct": probe.lost_pct}
        for metric, number in (udp if probe.proto == "udp" else tcp).items():
            yield _ends(probe) | {"metric": metric, "sample": index, "value": number}
        for ping, rtt_ms in enumerate(probe.rtt_ms):
            yield _ends(probe) | {"metric": "rtt_loaded_ms", "sample": ping, "value": rtt_ms}


def _ends(probe: Probe) -> Row:
    return {"phase": probe.phase, "src": probe.src, "dst": probe.dst}


def _drops(configured: Configured) -> Iterator[Row]:
    """Count the drops in the queues of impaired links. With offloads on, a drop may be a super-packet."""
    links = configured.hosts.values()
    if links:
        before = sum(_dropped(link.qdisc_before) for link in links)
        after = sum(_dropped(link.qdisc_after) for link in links)
        yield {"metric": "drop_events", "value": after - before}


def _dropped(queues: Iterable[Queue]) -> int:
    return sum(queue.drops for queue in queues if queue.kind in QUEUES)


def _retransmissions(hosts: Hosts) -> Iterator[Row]:
    """Compare the TCP segments that all hosts retransmitted with those that they sent."""
    counters = [host.tcp for host in hosts.hosts.values() if {"OutSegs", "RetransSegs"} <= set(host.tcp)]
    total = sum(counter["OutSegs"] for counter in counters)
    if total and len(counters) == len(hosts.hosts):
        retransmitted = sum(counter["RetransSegs"] for counter in counters)
        yield {"metric": "retransmitted_pct", "value": 100 * retransmitted / total}


def _node(hosts: Hosts) -> Iterator[Row]:
    node = hosts.hypervisor
    idle_pct = node.share_pct("idle_s")
    shares = {
        "node_busy_pct": None if idle_pct is None else 100 - idle_pct,
        "node_steal_pct": node.share_pct("steal_s"),
        "node_foreign_pct": node.foreign_pct,
        **{f"node_{resource}_pressure_pct": share for resource, share in node.pressure_pct.items()},
    }
    yield from ({"metric": metric, "value": share} for metric, share in shares.items() if share is not None)
