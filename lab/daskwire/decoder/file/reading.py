"""Read the packets of a capture file of any supported format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.base.errors import WireError
from daskwire.decoder.file import pcap, pcapng, source
from daskwire.decoder.file.records import Progress, Records
from daskwire.decoder.file.source import Advisor, Source

FIRST_BYTES = 1 << 20  # bytes of a file that contain its first packet


@dataclass(frozen=True)
class File:
    """A capture file, its size, and how far it was read."""

    path: str
    bytes: int
    progress: Progress

    def problems(self) -> list[str]:
        """Describe what is wrong with the file, one line per problem."""
        lines = [self.progress.problem] if self.progress.problem else []
        if self.progress.disordered:
            lines.append(
                f"{self.progress.disordered:,} of its packets were out of order; all are sorted by time"
            )
        if self.progress.set_back_ns:
            step_s = self.progress.set_back_ns / 1e9
            lines.append(
                f"its clock was set back by {step_s:,.3f} s while it was recorded; this was corrected"
            )
        if self.progress.dropped:
            lines.append(f"the capturing program lost {self.progress.dropped:,} packets")
        if self.progress.offset_ns:
            direction = "ahead of" if self.progress.offset_ns > 0 else "behind"
            offset_s = abs(self.progress.offset_ns) / 1e9
            lines.append(f"its clock was {offset_s:.6f} s {direction} the first file's and was aligned")
        if self.progress.unaligned:
            lines.append(
                "it has packets of an earlier file on the other side of a NAT, in one direction only: their"
                " clocks were not aligned, and what both contain may count twice"
            )
        return lines


def read_blocks(name: str, view: memoryview, progress: Progress) -> Iterator[Records]:
    """Yield the packets of a pcap or pcapng file from ``progress`` on.

    Raises:
        WireError: the file is neither, or its header is damaged.
    """
    for recognised, blocks in ((pcap.is_pcap, pcap.blocks), (pcapng.is_pcapng, pcapng.blocks)):
        if recognised(view):
            try:
                yield from blocks(view, progress, Advisor(view))
            except WireError as error:
                raise WireError(f"{name}: {error}") from None
            return
    raise WireError(f"{name}: {source.describe(view, name)}")


def first_packet_ns(sources: Iterable[Source]) -> int:
    """Return the time of the earliest first packet of several files, nanoseconds since 1970.

    Raises:
        WireError: a file cannot be read, or none contains a packet.
    """
    times = []
    for file in sources:
        for records in read_blocks(file.name, file.view[:FIRST_BYTES], Progress()):
            times.append(int(records.time_ns.min()))
            break
    if not times:
        raise WireError("no packets in these files")
    return min(times)


def between(records: Records, since_ns: int | None, until_ns: int | None) -> Records:
    """Select the packets with ``since_ns <= time < until_ns``."""
    if since_ns is None and until_ns is None:
        return records
    time_ns = records.time_ns
    until_ns = np.iinfo(np.int64).max if until_ns is None else until_ns
    return records.take((time_ns >= (since_ns or 0)) & (time_ns < until_ns))
