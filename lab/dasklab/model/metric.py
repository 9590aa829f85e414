"""What is measured: each metric once, with its unit, its words and where its samples come from.

To add one, add it here and yield its samples in ``dasklab.results.storage.table``; experiments, statistics,
tables and the report iterate over this registry. Its order is the order in which they are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticKnownError


@dataclass(frozen=True)
class Metric:
    """One metric. ``zero_based``: a link at rest has next to none of it, so that ratios say nothing."""

    name: str
    title: str
    unit: str
    source: str
    zero_based: bool = False

    @property
    def heading(self) -> str:
        """The first words of a line about it: ``Time to compute, s``."""
        return f"{self.title[0].upper()}{self.title[1:]}{', ' if self.unit else ''}{self.unit}"


def _registry() -> Iterator[Metric]:
    yield Metric("compute_s", "time to compute", "s", "timings: one run of the workload")
    yield Metric("cold_s", "time of a fresh cluster's first run", "s", "timings: the first warm-up")
    yield Metric("us_per_task", "time per task", "µs", "timings: one run over its number of tasks")
    yield Metric(
        "scheduler_us_per_task", "scheduler's CPU per task", "µs", "timings: one run over its number of tasks"
    )
    yield Metric("transfer_mb", "data moved per run", "MB", "timings: what workers sent to each other")
    yield Metric("rtt_ms", "RTT", "ms", "measured: one ping")
    yield Metric("rtt_loaded_ms", "RTT under load", "ms", "measured: one ping while iperf3 sends by TCP")
    yield Metric("throughput_mbit", "TCP throughput", "Mbit/s", "measured: one iperf3 run")
    yield Metric("udp_mbit", "UDP throughput", "Mbit/s", "measured: one iperf3 run")
    yield Metric("retransmits", "TCP retransmissions per probe", "", "measured: one iperf3 run", True)
    yield Metric("drop_events", "drop events in netem during the runs", "", "configured: all queues", True)
    yield Metric(
        "retransmitted_pct", "TCP segments sent again during the runs", "%", "hosts: all kernels", True
    )
    yield Metric("udp_lost_pct", "UDP loss", "%", "measured: one iperf3 run", True)
    yield Metric("frames", "frames captured", "", "capture: all tiers")
    yield Metric("node_busy_pct", "hypervisor's CPU in use", "%", "hosts: the node during the runs")
    yield Metric(
        "node_steal_pct",
        "hypervisor's CPU that others took",
        "%",
        "hosts: steal on the node during the runs",
        True,
    )
    yield Metric(
        "node_foreign_pct",
        "hypervisor's CPU that processes outside the lab used",
        "%",
        "hosts: the node during the runs, less the lab's guests and processes",
        True,
    )
    yield Metric(
        "node_memory_pressure_pct",
        "time in which anything on the hypervisor waited for memory",
        "%",
        "hosts: pressure on the node during the runs",
        True,
    )
    yield Metric(
        "node_disk_pressure_pct",
        "time in which anything on the hypervisor waited for a disk",
        "%",
        "hosts: pressure on the node during the runs",
        True,
    )


METRICS = {metric.name: metric for metric in _registry()}


def _known(name: str) -> str:
    if name not in METRICS:
        raise PydanticKnownError("literal_error", {"expected": ", ".join(METRICS)})
    return name


MetricName = Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(METRICS)})]
