"""The packets of a capture file, whatever its format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskwire.errors import WireError
from daskwire.file import pcap, pcapng
from daskwire.file.records import Progress, Records
from daskwire.file.source import Advisor, map_file

BEGINNING = 1 << 20  # bytes in which a file's first packet is found


@dataclass(frozen=True)
class File:
    """One file of a capture and how reading it went."""

    path: str
    bytes: int
    progress: Progress

    def problems(self) -> list[str]:
        """What is wrong with it, a line each."""
        said = [self.progress.problem] if self.progress.problem else []
        if self.progress.disordered:
            older = f"{self.progress.disordered:,} packets are older than the one before them"
            said.append(f"{older}: sorted by time")
        if self.progress.dropped:
            said.append(f"the capturing program lost {self.progress.dropped:,} packets")
        return said


def read_blocks(path: Path, view: memoryview, progress: Progress) -> Iterator[Records]:
    """The packets of a file of either format, from where ``progress`` stands. Raises WireError."""
    for recognised, blocks in ((pcap.is_pcap, pcap.blocks), (pcapng.is_pcapng, pcapng.blocks)):
        if recognised(view):
            try:
                yield from blocks(view, progress, Advisor(view))
            except WireError as error:
                raise WireError(f"{path}: {error}") from None
            return
    what = "empty" if not len(view) else "neither pcap nor pcapng"
    raise WireError(f"{path}: {what}")


def first_packet_ns(paths: Iterable[str | os.PathLike[str]]) -> int:
    """Time of the first packet of several files. Raises WireError."""
    times = []
    for path in map(Path, paths):
        view = map_file(path)
        for records in read_blocks(path, view[:BEGINNING], Progress()):
            times.append(int(records.time_ns.min()))
            break
    if not times:
        raise WireError("no packets in these files")
    return min(times)


def between(records: Records, since_ns: int | None, until_ns: int | None) -> Records:
    """The packets of a span of time."""
    if since_ns is None and until_ns is None:
        return records
    time_ns = records.time_ns
    until_ns = np.iinfo(np.int64).max if until_ns is None else until_ns
    return records.take((time_ns >= (since_ns or 0)) & (time_ns < until_ns))
