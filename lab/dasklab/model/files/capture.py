"""capture.json and completeness.json: what a capture counted, and whether it holds all it should."""

from __future__ import annotations

from typing import ClassVar, Literal

from dasklab.model.files.quantities import Amount, Count, Counters
from dasklab.model.files.timings import Timings
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import FileName, Strict


class Tier(Strict):
    """One tcpdump: its file, filter and snap length, and its own counters."""

    name: str
    file: FileName
    filter: str
    snaplen_bytes: Count
    frames: Count | None
    received: Count | None
    dropped_kernel: Count | None
    dropped_interface: Count | None
    left_behind: int | None
    bytes: Count


class CaptureReport(Document):
    """The counters of tcpdump and the kernel; ``timings`` are the repeats that were captured."""

    FILE: ClassVar[str] = "capture.json"

    interface: str
    driver: str
    promiscuity: Count
    start: Amount
    stop: Amount
    expired: bool
    snaplen: Count
    filter: str
    frames: Count | None
    dropped_kernel: Count | None
    dropped_interface: Count | None
    left_behind: int | None
    softnet_dropped: Count
    nic_statistics: Counters
    tiers: tuple[Tier, ...]
    timings: Timings


class Completeness(Document):
    """The verdict on a capture; ``dasklab.results.validity.completeness`` explains each number."""

    FILE: ClassVar[str] = "completeness.json"

    verdict: Literal["complete", "lost", "blind"]
    reasons: tuple[str, ...]
    frames: Count | None
    received: Count | None
    dropped_kernel: Count | None
    dropped_interface: Count | None
    softnet_dropped: Count
    left_behind: int | None
    stream_seen: Amount | None
    lost_bytes: Count | None
    messages: Count
    decoded: Amount | None
    sent_bytes: int | None = None
    seen_bytes: Count | None = None
