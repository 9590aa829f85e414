"""Packets, or parts of them, that the capture lost."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import Finding, Kind, percent
from daskwire.analysis.tables.completeness import completeness
from daskwire.analysis.tables.summary import snaplen
from daskwire.decoder.file import tcpdump

LOST_SHARE = 0.01


def detect(evidence: Evidence) -> Iterator[Finding]:
    yield from _missing_bytes(evidence)
    yield from _truncated_packets(evidence)
    yield from _early_connections(evidence)
    yield from _damaged_files(evidence)


def _missing_bytes(evidence: Evidence) -> Iterator[Finding]:
    """Yield what the capture lost: its receiver acknowledged it."""
    flows = evidence.capture.table("flows")
    stream, lost = sum(flows["stream_bytes"]), sum(flows["lost_bytes"])
    if lost:
        missing = completeness(evidence.capture)["messages_missing"]
        share = percent(lost / stream)
        what = f"{lost:,} of {stream:,} stream bytes ({share}) were acknowledged but not captured"
        what += f"; about {missing:,} messages are missing" if missing else ""
        yield Finding(KIND, what, number=lost, is_note=lost < LOST_SHARE * stream)


def _truncated_packets(evidence: Evidence) -> Iterator[Finding]:
    if cut := snaplen(evidence.capture):
        is_note = not evidence.is_cut and not cut["unframed_bytes"]
        what = (
            f"{cut['packets']:,} packets were truncated to {cut['kept_bytes']:,} bytes: {cut['messages']:,}"
            f" messages have no content, {cut['unframed_bytes']:,} bytes no message"
        )
        yield Finding(KIND, what, number=cut["packets"], is_note=is_note)


def _early_connections(evidence: Evidence) -> Iterator[Finding]:
    """Yield connections that began before the capture."""
    figures = completeness(evidence.capture)
    for name, what in (
        (
            "began_before",
            f"of {len(evidence.capture.conversations):,} Dask connections began before the capture",
        ),
        ("unrecognised", "connections began before the capture and were not recognised"),
    ):
        if number := figures[name]:
            yield Finding(KIND, f"{number:,} {what}", number=number, is_note=True)


def _damaged_files(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.capture.files:
        if file.progress.problem:
            yield Finding(
                KIND,
                f"{file.path}: {file.progress.problem}",
                is_note=not file.progress.damaged,
            )
        if file.progress.dropped:
            what = f"{file.path}: the capturing program lost {file.progress.dropped:,} packets"
            few = file.progress.dropped < LOST_SHARE * max(evidence.capture.packets, 1)
            number = file.progress.dropped
            yield Finding(KIND, what, number=number, is_note=few)


KIND = Kind(
    name="incomplete capture",
    meaning="Packets are missing from the capture although the network delivered them.",
    threshold=(
        "1 % of the stream bytes were acknowledged but not captured; or truncated packets cost the content"
        " of 2 % of the messages; or 1 % of the packets were not decoded"
    ),
    advice=(
        f"Record with the snaplen and the buffer of '{tcpdump.RECORD}', to a fast disk; with -s 0 if that"
        " still truncates messages."
    ),
    is_first=True,
    effects=frozenset({"standstill", "unregistered worker"}),
    is_about_capture=True,
    detect=detect,
)
