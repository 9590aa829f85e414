"""The registry of metrics: each one with its title, unit, format, direction and source.

Experiments, statistics, tables and the report iterate over it, in its order. To add a metric, add a row here
and yield its samples in ``dasklab.results.samples``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from dasklab.model.forms.number_format import format_count, format_number, format_quantity


@dataclass(frozen=True)
class Metric:
    """One row of the registry.

    Attributes:
        name: the name in experiments and tables; its suffix is the unit.
        title: the name for people.
        unit: for people; empty for a count.
        source: the file that the samples come from, and what one sample is.
        format: how a value is written for people.
        worse: whether more or less of it is worse; None if neither is.
        zero_based: a link at rest has almost none of it, so ratios to the baseline mean nothing.
    """

    name: str
    title: str
    unit: str
    source: str
    format: Callable[[float], str] = format_number
    worse: Literal["more", "less"] | None = "more"
    zero_based: bool = False

    @property
    def heading(self) -> str:
        """The title with the unit, as a heading: ``Time to compute, s``."""
        return f"{self.title[0].upper()}{self.title[1:]}{', ' if self.unit else ''}{self.unit}"

    def quantity(self, value: float) -> str:
        """Write a value with the unit that people would use: ``6.54 Gbit/s``."""
        return format_quantity(value, self.unit, self.format)


_ROWS = (
    Metric("compute_s", "time to compute", "s", "timings: one repeat of the workload"),
    Metric("cold_s", "time of a fresh cluster's first repeat", "s", "timings: the first warm-up"),
    Metric("us_per_task", "time per task", "µs", "timings: one repeat, divided by its number of tasks"),
    Metric(
        "scheduler_us_per_task",
        "scheduler's CPU time per task",
        "µs",
        "timings: one repeat, divided by its number of tasks",
    ),
    Metric(
        "transfer_mb", "data moved per repeat", "MB", "timings: what workers sent to each other in one repeat"
    ),
    Metric("rtt_ms", "RTT", "ms", "measured: one ping"),
    Metric("rtt_loaded_ms", "RTT under load", "ms", "measured: one ping while iperf3 sends with TCP"),
    Metric("throughput_mbit", "TCP throughput", "Mbit/s", "measured: one run of iperf3", worse="less"),
    Metric("udp_mbit", "UDP throughput", "Mbit/s", "measured: one run of iperf3", worse="less"),
    Metric(
        "retransmits",
        "TCP retransmissions per probe",
        "",
        "measured: one run of iperf3",
        format=format_count,
        zero_based=True,
    ),
    Metric(
        "drop_events",
        "drops in netem during the repeats",
        "",
        "configured: all queues",
        format=format_count,
        zero_based=True,
    ),
    Metric(
        "retransmitted_pct",
        "TCP segments retransmitted during the repeats",
        "%",
        "hosts: all kernels",
        zero_based=True,
    ),
    Metric("udp_lost_pct", "UDP loss", "%", "measured: one run of iperf3", zero_based=True),
    Metric("frames", "frames captured", "", "capture: all tiers", format=format_count, worse=None),
    Metric("node_busy_pct", "CPU of the node in use", "%", "hosts: the node during the repeats", worse=None),
    Metric(
        "node_steal_pct",
        "steal time of the node",
        "%",
        "hosts: the node's CPU that other virtual machines took during the repeats",
        zero_based=True,
    ),
    Metric(
        "node_foreign_pct",
        "CPU of the node that processes outside the lab used",
        "%",
        "hosts: the node during the repeats, without the lab's guests and processes",
        zero_based=True,
    ),
    Metric(
        "node_memory_pressure_pct",
        "share of time in which the node waited for memory",
        "%",
        "hosts: pressure stall information of the node during the repeats",
        zero_based=True,
    ),
    Metric(
        "node_disk_pressure_pct",
        "share of time in which the node waited for a disk",
        "%",
        "hosts: pressure stall information of the node during the repeats",
        zero_based=True,
    ),
)
METRICS = {metric.name: metric for metric in _ROWS}


def _require_metric(name: str) -> str:
    if name not in METRICS:
        raise PydanticKnownError("literal_error", {"expected": ", ".join(METRICS)})
    return name


MetricName = Annotated[
    str, AfterValidator(_require_metric), WithJsonSchema({"type": "string", "enum": list(METRICS)})
]
