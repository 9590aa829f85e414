"""Open capture files: the steps of the decoder, in order, and the function that builds each table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from daskwire.analysis.problems.detect import problems
from daskwire.analysis.tables import messages, participants, tasks, traffic
from daskwire.base.arrays import Columns
from daskwire.base.errors import WireError
from daskwire.base.schema import TABLES, Table
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.carriers import read_key_log
from daskwire.decoder.dask.conversations import find_conversations
from daskwire.decoder.dask.relays import RELAYED, relays
from daskwire.decoder.file.reading import File, between, read_blocks
from daskwire.decoder.file.records import Progress
from daskwire.decoder.file.source import Memory, Source, open_sources
from daskwire.decoder.net.connections import split_reused
from daskwire.decoder.net.packets.headers import parse_segments
from daskwire.decoder.net.packets.layers import TUNNEL_PORTS, Shared
from daskwire.decoder.net.recordings import duplicates_of_points, recordings, translations, undo_steps_back
from daskwire.decoder.net.segments import ACK, SYN, Segments, lanes, sort_by_time
from daskwire.decoder.net.tcp import reassemble

Report = Callable[[float], None]  # called with the share of the files that has been read, 0 to 1
Pairs = list[tuple[int, int]]
BUILDERS = {
    "messages": messages.messages,
    "ops": messages.ops,
    "heartbeats": messages.heartbeats,
    "matrix": traffic.matrix,
    "series": traffic.series,
    "composition": messages.composition,
    "packets": traffic.packets,
    "flows": traffic.flows,
    "nodes": participants.nodes,
    "reach": traffic.reach,
    "problems": problems,
}
PAIR_BUILDERS = {  # tables that are computed together
    ("transfers", "parts"): messages.transfers,
    ("tasks", "gaps"): tasks.tasks,
}


def open_capture(
    paths: str | os.PathLike[str] | Source | Iterable[str | os.PathLike[str] | Source],
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    names: Mapping[str, str] | None = None,
    key_log: str | None = None,
    tunnel_ports: Mapping[int, str] | None = None,
    report: Report | None = None,
) -> Capture:
    """Read a capture of one or several files, and find the Dask messages in it.

    A damaged or truncated file is read up to that position; ``Capture.files`` describes the problem. Several
    files may be parts of one recording, or recordings of the same traffic at several points: their clocks are
    aligned, and each packet counts once.

    Args:
        paths: a file, or the files of one capture. A directory stands for the captures in it, ``-`` for
            standard input. A pipe is read until its writer closes it.
        since_ns: ignore packets before this time, nanoseconds since 1970.
        until_ns: ignore packets from this time on.
        names: address (``10.0.0.1`` or ``10.0.0.1:8786``) -> name of the node.
        key_log: text of a TLS key log.
        tunnel_ports: UDP port -> ``vxlan`` or ``geneve``, in addition to their usual ports.
        report: called with the share of the files that has been read, 0 to 1.

    Raises:
        WireError: a file cannot be read or is not a capture.
    """
    sources = open_sources([paths] if isinstance(paths, str | os.PathLike | Source) else paths)
    memory, shared = Memory(), Shared({**TUNNEL_PORTS, **(tunnel_ports or {})})
    files: list[File] = []
    bases: list[int] = []
    columns = Columns(Segments.TYPES)
    for index, source in enumerate(sources):
        view, progress = source.view, Progress()
        files.append(File(source.name, len(view), progress))
        base = memory.add(view)
        bases.append(base)
        for records in read_blocks(source.name, view, progress):
            shared.tally.note_times(records.time_ns)
            progress.note_times(records)
            selected = between(records, since_ns, until_ns)
            share = (index + progress.position / len(view)) / len(sources)
            for part in parse_segments(view, base, selected, shared, index):
                columns.add(part.columns(), share)
            if report:
                report(share)
    segments = Segments(*columns.arrays())
    _undo_steps_back(segments, shared, files, bases)
    _align_clocks(segments, shared, files, bases)
    sort_by_time(segments)
    opening, answers = (np.flatnonzero(segments.flags & (SYN | ACK) == kind) for kind in (SYN, SYN | ACK))
    split_reused(segments.flow, opening, answers, segments.seq, segments.ack, shared.connections)
    segments, translated = _join(segments, shared)
    pieces, disorder = reassemble(segments)
    logs = [f.progress.secrets.decode("ascii", "replace") for f in files] + ([key_log] if key_log else [])
    secrets = read_key_log("\n".join(logs))
    conversations, others = find_conversations(memory, segments, pieces, secrets)
    relayed = relays(conversations, shared.connections)
    for _, inner in relayed:
        others[inner] = RELAYED
        del conversations[inner]
    return Capture(
        files=files,
        memory=memory,
        connections=shared.connections,
        translations=translated,
        relays=relayed,
        macs=shared.macs,
        notices=shared.notices,
        duplicate_sacks=shared.duplicate_sacks,
        tally=shared.tally,
        segments=segments,
        pieces=pieces,
        disorder=disorder,
        conversations=conversations,
        other_protocols=others,
        user_names=names or {},
        build_tables=build_tables,
    )


def _undo_steps_back(segments: Segments, shared: Shared, files: list[File], bases: list[int]) -> None:
    """Correct the times of files whose clock was set back while they were recorded."""
    for file, base in zip(files, bases, strict=True):
        for start, back_ns in undo_steps_back(segments, file, base) if file.progress.steps_back else ():
            shared.shift(range(start, base + file.bytes), back_ns)
    if any(file.progress.set_back_ns for file in files):
        shared.tally.first_ns, shared.tally.last_ns = int(segments.time_ns.min()), int(segments.time_ns.max())


def _align_clocks(segments: Segments, shared: Shared, files: list[File], bases: list[int]) -> None:
    """Align the clocks of several files, and give all files of a recording the same capture points."""
    if len(files) == 1 or not len(segments):
        return
    file = shared.points.files()[segments.point]
    result = recordings(segments, file, len(files))
    for index, offset_ns in enumerate(result.offset_ns):
        files[index].progress.unaligned = result.unaligned[index]
        if offset_ns:
            segments.time_ns[file == index] -= offset_ns
            files[index].progress.offset_ns = offset_ns
            shared.shift(range(bases[index], bases[index] + files[index].bytes), -offset_ns)
    segments.point[:] = shared.points.merged(result.recording)[segments.point]
    shared.tally.begin_ns = min(shared.tally.begin_ns, int(segments.time_ns.min()))


def _join(segments: Segments, shared: Shared) -> tuple[Segments, Pairs]:
    """Remove segments that were captured at several points or on both sides of a NAT, all but once."""
    flows = 2 * len(shared.connections)
    by_flow = lanes(segments, flows)
    translated = translations(segments, by_flow)
    if translated:
        _merge_translated(segments, translated, flows)
        by_flow = lanes(segments, flows)
    if not len(segments) or (segments.point == segments.point[0]).all():
        return segments, translated
    repeated = duplicates_of_points(segments, by_flow)
    shared.tally.repeated = int(repeated.sum())
    return (segments.take(~repeated) if shared.tally.repeated else segments), translated


def _merge_translated(segments: Segments, translated: Pairs, flows: int) -> None:
    """Assign the inner flow of each pair to the outer one, at a capture point of its own."""
    flow_of = np.arange(flows, dtype=np.int32)
    for outer, inner in translated:
        flow_of[inner], flow_of[inner ^ 1] = outer, outer ^ 1
    inner_rows = flow_of[segments.flow] != segments.flow
    segments.point[inner_rows] += int(segments.point.max()) + 1
    segments.flow[:] = flow_of[segments.flow]


def build_tables(capture: Capture, name: str) -> dict[str, Table]:
    """Build a table, and any other that is computed with it.

    Raises:
        WireError: there is no table with this name.
    """
    for names, build_pair in PAIR_BUILDERS.items():
        if name in names:
            return dict(zip(names, build_pair(capture), strict=True))
    if name not in BUILDERS:
        raise WireError(f"there is no table {name!r}; the tables are {', '.join(TABLES)}")
    return {name: BUILDERS[name](capture)}
