"""Packets that could not be decoded."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import Finding, Kind
from daskwire.analysis.problems.kinds import incomplete_capture
from daskwire.analysis.tables.summary import likely_tunnels, not_decoded
from daskwire.decoder.net.packets.skipped import FRAGMENTS

SKIPPED_PACKET_SHARE = 0.01


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield why packets were not decoded. If Dask was found all the same, the capture is only incomplete."""
    capture = evidence.capture
    reasons = {**likely_tunnels(capture), **not_decoded(capture)}
    if fragments := capture.skipped[FRAGMENTS]:
        reasons[FRAGMENTS] = fragments
    if not reasons:
        return
    number = sum(reasons.values())
    parts = ", ".join(f"{reason} {packets:,}" for reason, packets in reasons.items())
    what = f"{number:,} of {capture.packets:,} packets: {parts}"
    if not capture.conversations:
        yield Finding(KIND, what, number=number)
    else:
        is_note = number < SKIPPED_PACKET_SHARE * capture.packets
        yield Finding(incomplete_capture.KIND, f"not decoded: {what}", number=number, is_note=is_note)


KIND = Kind(
    name="undecoded capture",
    meaning="Nothing of Dask could be decoded.",
    threshold=(
        "no Dask message, although packets may carry Dask: tunnels, unsupported link types, IP fragments"
    ),
    advice=(
        "Tunnels: record inside, or name the tunnel's port with --tunnel. Link types: record an Ethernet"
        " interface, or -i any. Fragments: lower the MTU of the tunnel's inner interface."
    ),
    is_first=True,
    is_about_capture=True,
    detect=detect,
)
