"""The study's figures 3 to 7: what workers and scheduler say when nobody asks for anything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

from lab.report import figures
from lab.report.captures import wire_figures
from lab.report.captures.heard import Grid, Heard, Recording, Rows, group
from lab.results.measures import number
from lab.wire.tables.exchange import Packet, dialogue_rows, flat, packets, said, shortened

OP = "heartbeat_worker"
OPS_SHOWN = 10
Said = Counter[tuple[str, str]]  # (sender, op)


def tell(recording: Recording, study: Mapping[str, Any]) -> Heard:
    """The dialogue beside the study's, its intervals by worker and, of an idle cluster, all that is said."""
    rows = recording.rows("heartbeats")
    beats = [row for row in rows if recording.during(row["time_ns"])]
    request = _exemplary(recording)
    if request is None:
        return Heard()
    ours, theirs = packets(recording.capture, request), _their_packets(study)
    drawn = {"heartbeat": (_dialogue_caption(beats), wire_figures.dialogues(ours, theirs))}
    intervals = _intervals(beats)
    asked_ms = _asked_ms(beats)
    if intervals:
        figure = wire_figures.intervals(intervals, asked_ms, study["interval_printed_ms"])
        drawn["intervals"] = (_interval_caption(study), figure)
    heard = Heard([], drawn, [_fields(recording, request, study)])
    return _answer(recording, beats, intervals, study) + heard if recording.idle else heard


def _exemplary(recording: Recording) -> int | None:
    """Of the runs' answered heartbeats that take as many packets as most do, the one of middle length."""
    capture, found = recording.capture, recording.capture.messages
    during = recording.during(found.time_ns)
    sizes: dict[int, int] = {
        message: len(dialogue_rows(capture, message))
        for message, op in zip(found.op_message.tolist(), found.op_name, strict=True)
        if op == OP and found.answer[message] >= 0 and during[message]
    }
    if not sizes:
        return None
    usual = Counter(sizes.values()).most_common(1)[0][0]
    alike = [message for message, size in sizes.items() if size == usual]
    alike.sort(key=lambda message: int(found.end_ns[found.answer[message]] - found.time_ns[message]))
    return alike[len(alike) // 2]


def _their_packets(study: Mapping[str, Any]) -> list[Packet]:
    """The study's frames; it gave neither times nor flags."""
    keys = ("source", "destination", "seq", "ack", "payload_bytes", "frame_bytes", "received_twice")
    return [Packet(float("nan"), flags="", **{key: p[key] for key in keys}) for p in study["points"]]


def _intervals(beats: Rows) -> dict[str, list[float]]:
    """Time since the worker's heartbeat before, in ms, by worker."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in beats:
        if row["interval_ms"] is not None:
            found[row["worker"]].append(row["interval_ms"])
    return dict(sorted(found.items()))


def _dialogue_caption(beats: Rows) -> str:
    usual, times = Counter(row["packets"] for row in beats).most_common(1)[0]
    return (
        "A heartbeat, packet by packet: payload + headers, and relative sequence numbers; not to scale."
        f" {times} of {len(beats)} dialogues have {usual} packets: a quick reply of the scheduler carries the"
        " ACK, else that is one more. The study's are its frames 250 to 255 (figures 4 to 7); the D-SACK in"
        " its first ACK says that the heartbeat had arrived twice."
    )


def _interval_caption(study: Mapping[str, Any]) -> str:
    return (
        "Time between a worker's heartbeats, a dot each; at the right the median (5th to 95th percentile)."
        f" The study printed {study['interval_printed_ms']:,} ms: that is 0x3FE, the exponent field of the"
        f" float64 0.5 in its own bytes, which say {study['interval_true_ms']} ms."
    )


def _fields(recording: Recording, request: int, study: Mapping[str, Any]) -> Grid:
    """What the heartbeat and its reply hold, field by field."""
    answer = int(recording.capture.messages.answer[request])
    rows = []
    for title, message in (("request", request), ("reply", answer)):
        ours, theirs = said(recording.capture, message) or {}, flat(study[title])
        for key in dict.fromkeys([*ours, *theirs]):
            values = [shortened(each[key]) if key in each else "" for each in (ours, theirs)]
            rows.append([f"{title}: {key}", *values])
    return Grid("What a heartbeat says, field by field", ["field", "here", "2019 study"], rows, numbers=False)


def _asked_ms(beats: Rows) -> float | None:
    """The interval that the scheduler's replies ask for."""
    told = [row["announced_ms"] for row in beats if row["announced_ms"] is not None]
    return median(told) if told else None


def _answer(
    recording: Recording, beats: Rows, intervals: dict[str, list[float]], study: Mapping[str, Any]
) -> Heard:
    """All that an idle cluster says."""
    messages = [row for row in recording.rows("messages") if recording.during(row["time_ns"])]
    number_of: Said = Counter()
    bytes_of: Said = Counter()
    for row in messages:
        key = group(row["source"]), row["op"] or row["kind"]
        number_of[key] += 1
        bytes_of[key] += row["bytes"]
    common = number_of.most_common()
    shares = {f"{who}: {op}": 100 * n / number_of.total() for (who, op), n in common[:OPS_SHOWN]}
    caption = f"All {number_of.total():,} messages of {number(recording.window_s)} idle seconds, by sender."
    rows = [
        [f"{who}: {op}", f"{n:,}", number(n / recording.window_s), f"{bytes_of[who, op]:,}"]
        for (who, op), n in common
    ]
    drawn = {"idle": (caption, figures.shares(shares, {}, "% of all messages"))}
    grid = Grid("What an idle cluster says", ["message", "number", "a second", "bytes"], rows)
    sentences = [_rhythm(recording, beats, intervals), _error(_asked_ms(beats), study)]
    mine = number_of["workers", OP] + number_of["scheduler", f"reply to {OP}"]
    sentences.append(
        f"Of all messages {number(100 * mine / number_of.total())} % are heartbeats and replies."
    )
    return Heard([s for s in sentences if s], drawn, [grid])


def _rhythm(recording: Recording, beats: Rows, intervals: dict[str, list[float]]) -> str:
    every = [ms for mine in intervals.values() for ms in mine]
    if not every:
        return ""
    low, high = np.quantile(every, (0.05, 0.95))
    sizes = [median(row[key] for row in beats if row[key]) for key in ("request_bytes", "reply_bytes")]
    return (
        "When nobody asks for anything, each worker sends the scheduler a heartbeat every"
        f" {number(median(every))} ms (nine in ten within {number(low)} to {number(high)}): {sizes[0]:.0f}"
        f" bytes, answered by {sizes[1]:.0f}; with headers and ACKs workers and scheduler exchange"
        f" {number(_chatter(recording, len(intervals)))} bytes a second for each worker."
    )


def _error(asked_ms: float | None, study: Mapping[str, Any]) -> str:
    if asked_ms is None:
        return ""
    return (
        f"The scheduler asks for {asked_ms:g} ms; the study printed {study['interval_printed_ms']:,} ms for"
        f" that field, wrongly: its bytes say {study['interval_true_ms']}."
    )


def _chatter(recording: Recording, workers: int) -> float:
    """IP bytes a second between the scheduler and each worker, both ways."""
    segments, sources = recording.capture.segments, recording.capture.sources
    ends = [{group(sources[flow]), group(sources[flow ^ 1])} for flow in range(len(sources))]
    wanted = np.array([pair == {"workers", "scheduler"} for pair in ends], bool)
    counted = wanted[segments.flow] & recording.during(segments.time_ns)
    return float(segments.ip_bytes[counted].sum()) / recording.window_s / workers
