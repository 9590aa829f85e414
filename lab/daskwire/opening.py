"""From files to a capture: the steps of the decoder, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from daskwire.arrays import Columns
from daskwire.capture import Capture
from daskwire.dask.dialogues import find_dialogues
from daskwire.dask.tls import KeyLog, read_key_log
from daskwire.file.memory import Memory
from daskwire.file.reading import File, between, read_blocks
from daskwire.file.records import Progress
from daskwire.file.source import map_file
from daskwire.net.connections import Connections, split_reused
from daskwire.net.headers import segments
from daskwire.net.segments import ACK, SYN, Segments, Tally, sort_by_time
from daskwire.net.tcp import reassemble
from daskwire.tables.products import make

Report = Callable[[float], None]  # is given the share of the files read so far, 0 to 1


def open_capture(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    names: Mapping[str, str] | None = None,
    key_log: str | None = None,
    report: Report | None = None,
) -> Capture:
    """Read one capture, or several that belong together, and find the Dask messages in it.

    ``names`` maps addresses (``10.0.0.1`` or ``10.0.0.1:8786``) to node names; ``since_ns``/``until_ns``
    bound the packets looked at (nanoseconds since 1970). ``key_log`` is the text of a TLS key log. Raises
    WireError when a file is no capture. A damaged or cut-off file gives what could be read;
    ``Capture.files`` says what was wrong.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    memory, table, tally = Memory(), Connections(), Tally()
    files: list[File] = []
    columns = Columns(Segments.TYPES)
    for index, path in enumerate(map(Path, listed)):
        view = map_file(path)
        progress = Progress()
        files.append(File(str(path), len(view), progress))
        base = memory.add(view)
        for records in read_blocks(path, view, progress):
            tally.see(records.time_ns)
            progress.see(records.time_ns)
            chosen = between(records, since_ns, until_ns)
            share = (index + progress.position / len(view)) / len(listed)
            for part in segments(view, base, chosen, table, tally):
                columns.add(part.columns(), share)
            if report:
                report(share)
    together = Segments(*columns.arrays())
    sort_by_time(together)
    logs = [f.progress.secrets.decode("ascii", "replace") for f in files] + ([key_log] if key_log else [])
    return _decode(files, memory, table, tally, together, names or {}, read_key_log("\n".join(logs)))


def _decode(
    files: list[File],
    memory: Memory,
    table: Connections,
    tally: Tally,
    together: Segments,
    names: Mapping[str, str],
    secrets: KeyLog,
) -> Capture:
    """From segments to messages."""
    opening = np.flatnonzero(together.flags & (SYN | ACK) == SYN)
    split_reused(together.flow, opening, together.seq, together.ack, table)
    pieces, upset = reassemble(together)
    dialogues, others = find_dialogues(memory, together, pieces, secrets)
    return Capture(files, memory, table, tally, together, pieces, upset, dialogues, others, names, make)
