"""measured.json: what probes measured of the links, before and after the repeats."""

from __future__ import annotations

from typing import ClassVar, Literal

from dasklab.model.files.quantities import Amount, Count
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict


class Probe(Strict):
    """Which way a probe went, and whether before or after the repeats."""

    src: str
    dst: str
    phase: Literal["before", "after"]


class Rtt(Probe):
    """``pings`` were sent; lost ones are missing in the samples."""

    pings: Count
    samples_ms: tuple[Amount, ...]


class Throughput(Probe):
    """One run of iperf3, as its receiver saw it; ``rtt_ms``: with TCP, pings on the same way meanwhile."""

    proto: Literal["tcp", "udp"]
    mbit: Amount
    seconds: Amount
    retransmits: Count | None = None
    lost_pct: Amount | None = None
    frames: Count | None = None
    rtt_ms: tuple[Amount, ...] = ()


class ProbeError(Probe):
    """A run of iperf3 that failed."""

    proto: Literal["tcp", "udp"]
    error: str


class Measured(Document):
    """The results of all probes of a trial."""

    FILE: ClassVar[str] = "measured.json"

    rtt: tuple[Rtt, ...] = ()
    throughput: tuple[Throughput, ...] = ()
    errors: tuple[ProbeError, ...] = ()
