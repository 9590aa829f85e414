"""hosts.json: what the guests and their hypervisor are, and what their kernels counted during the repeats."""

from __future__ import annotations

from typing import ClassVar

from dasklab.model.files.quantities import Amount, Count, Counters
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict


class HostFacts(Strict):
    """One guest. Counters are differences between two readings, before and after the repeats."""

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
    """The node that runs the guests; ``accel`` is kvm, tcg, or what the guests report.

    ``lab_cpu_s`` is the part of ``cpu`` that the lab's own guests and processes used. ``pressure_pct`` is the
    share of time in which any process of the node waited for memory or a disk (pressure stall information).
    """

    name: str | None
    accel: str
    cpu: Counters | None = None
    lab_cpu_s: float | None = None
    pressure_pct: Counters = {}

    @property
    def foreign_pct(self) -> float | None:
        """The share of the node's CPU time that processes outside the lab used; None if it is unknown."""
        if not self.cpu or self.lab_cpu_s is None:
            return None
        used = sum(self.cpu[field] for field in ("user_s", "nice_s", "system_s"))
        return 100 * max(0.0, used - self.lab_cpu_s) / sum(self.cpu.values())

    def share_pct(self, field: str) -> float | None:
        """The share of the node's CPU time in this field of /proc/stat; None if it is unknown."""
        total = sum(self.cpu.values()) if self.cpu else 0
        return 100 * self.cpu[field] / total if self.cpu and field in self.cpu and total > 0 else None


class Hosts(Document):
    """All guests of the lab and their hypervisor."""

    FILE: ClassVar[str] = "hosts.json"

    hosts: dict[str, HostFacts] = {}
    hypervisor: Hypervisor
