"""Open capture files: the steps of the decoder, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from daskwire.arrays import Columns
from daskwire.capture import Capture
from daskwire.dask.conversations import find_conversations
from daskwire.dask.tls import KeyLog, read_key_log
from daskwire.file.memory import Memory
from daskwire.file.reading import File, between, read_blocks
from daskwire.file.records import Progress
from daskwire.file.source import Source, open_sources
from daskwire.net.connections import Connections, split_reused
from daskwire.net.headers import parse_segments
from daskwire.net.segments import ACK, SYN, Segments, Tally, sort_by_time
from daskwire.net.tcp import reassemble
from daskwire.tables.builders import build_tables

Report = Callable[[float], None]  # called with the share of the files that has been read, 0 to 1


def open_capture(
    paths: str | os.PathLike[str] | Source | Iterable[str | os.PathLike[str] | Source],
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    names: Mapping[str, str] | None = None,
    key_log: str | None = None,
    report: Report | None = None,
) -> Capture:
    """Read a capture of one or several files, and find the Dask messages in it.

    A damaged or truncated file is read up to that position; ``Capture.files`` describes the problem.

    Args:
        paths: a file, or the files of one capture. A directory stands for the captures in it, ``-`` for
            standard input. A pipe is read until its writer closes it.
        since_ns: ignore packets before this time, nanoseconds since 1970.
        until_ns: ignore packets from this time on.
        names: address (``10.0.0.1`` or ``10.0.0.1:8786``) -> name of the node.
        key_log: text of a TLS key log.
        report: called with the share of the files that has been read, 0 to 1.

    Raises:
        WireError: a file cannot be read or is not a capture.
    """
    sources = open_sources([paths] if isinstance(paths, str | os.PathLike | Source) else paths)
    memory, table, tally = Memory(), Connections(), Tally()
    files: list[File] = []
    columns = Columns(Segments.TYPES)
    for index, source in enumerate(sources):
        view, progress = source.view, Progress()
        files.append(File(source.name, len(view), progress))
        base = memory.add(view)
        for records in read_blocks(source.name, view, progress):
            tally.note_times(records.time_ns)
            progress.note_times(records.time_ns)
            selected = between(records, since_ns, until_ns)
            share = (index + progress.position / len(view)) / len(sources)
            for part in parse_segments(view, base, selected, table, tally):
                columns.add(part.columns(), share)
            if report:
                report(share)
    all_segments = Segments(*columns.arrays())
    sort_by_time(all_segments)
    logs = [f.progress.secrets.decode("ascii", "replace") for f in files] + ([key_log] if key_log else [])
    return _decode(files, memory, table, tally, all_segments, names or {}, read_key_log("\n".join(logs)))


def _decode(
    files: list[File],
    memory: Memory,
    table: Connections,
    tally: Tally,
    segments: Segments,
    names: Mapping[str, str],
    secrets: KeyLog,
) -> Capture:
    """Reassemble the segments and find the messages."""
    opening = np.flatnonzero(segments.flags & (SYN | ACK) == SYN)
    split_reused(segments.flow, opening, segments.seq, segments.ack, table)
    pieces, disorder = reassemble(segments)
    conversations, others = find_conversations(memory, segments, pieces, secrets)
    return Capture(
        files, memory, table, tally, segments, pieces, disorder, conversations, others, names, build_tables
    )
