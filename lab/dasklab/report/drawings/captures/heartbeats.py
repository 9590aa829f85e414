"""The study's figures 3 to 7: the messages of an idle cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from daskwire.analysis.tables.traffic import Packet, flat, shortened

from dasklab.model.forms.number_format import format_number
from dasklab.report.drawings import figures
from dasklab.report.drawings.captures import drawings
from dasklab.report.drawings.captures.content import Content, TextTable, group
from dasklab.results.decode import HEARTBEAT, Heartbeat
from dasklab.results.recording import Recording, Rows

OPS_SHOWN = 10


def describe(capture: Recording, study: Mapping[str, Any]) -> Content:
    """Describe the dialogue beside the study's, its intervals by worker and, if idle, all messages."""
    example = capture.summary.heartbeat
    if example is None:
        return Content()
    beats = [row for row in capture.rows("heartbeats") if capture.during(row["time_ns"])]
    dialogues = drawings.dialogues(example.packets, _their_packets(study))
    content = {"heartbeat": (_dialogue_caption(beats), dialogues)}
    intervals, requested_ms = _intervals(beats), _requested_ms(beats)
    if intervals:
        figure = drawings.intervals(intervals, requested_ms, study["interval_printed_ms"])
        content["intervals"] = (_interval_caption(study), figure)
    described = Content([], content, [_fields(example, study)])
    return _idle(capture, beats, intervals, study) + described if capture.idle else described


def _their_packets(study: Mapping[str, Any]) -> list[Packet]:
    """Return the study's frames; it gave neither times nor flags."""
    keys = ("source", "destination", "seq", "ack", "payload_bytes", "frame_bytes", "received_twice")
    return [Packet(float("nan"), flags="", **{key: p[key] for key in keys}) for p in study["points"]]


def _intervals(beats: Rows) -> dict[str, list[float]]:
    """Return for each worker the times since its previous heartbeat, in ms."""
    intervals: defaultdict[str, list[float]] = defaultdict(list)
    for row in beats:
        if row["interval_ms"] is not None:
            intervals[row["worker"]].append(row["interval_ms"])
    return dict(sorted(intervals.items()))


def _dialogue_caption(beats: Rows) -> str:
    usual, times = Counter(row["packets"] for row in beats).most_common(1)[0]
    return (
        "A heartbeat, packet by packet: payload + headers, and relative sequence numbers; not to scale."
        f" {times} of {len(beats)} dialogues have {usual} packets: a quick reply of the scheduler carries the"
        " ACK, else the ACK is a packet of its own. The study's are its frames 250 to 255 (figures 4 to 7);"
        " the D-SACK in its first ACK shows that the heartbeat had arrived twice."
    )


def _interval_caption(study: Mapping[str, Any]) -> str:
    return (
        "Time between a worker's heartbeats, one dot each; at the right the median (5th to 95th percentile)."
        f" The study printed {study['interval_printed_ms']:,} ms: that is 0x3FE, the exponent field of the"
        f" float64 0.5 in its own bytes, which mean {study['interval_true_ms']} ms."
    )


def _fields(example: Heartbeat, study: Mapping[str, Any]) -> TextTable:
    """Return the fields of the heartbeat and of its reply, beside the study's."""
    rows = []
    for title, ours in (("request", example.request), ("reply", example.reply)):
        theirs = {path: shortened(value) for path, value in flat(study[title]).items()}
        for key in dict.fromkeys([*ours, *theirs]):
            rows.append([f"{title}: {key}", ours.get(key, ""), theirs.get(key, "")])
    heads = ["field", "here", "2019 study"]
    return TextTable("A heartbeat, field by field", heads, rows, numbers=False)


def _requested_ms(beats: Rows) -> float | None:
    """Return the interval that the scheduler's replies request."""
    requested = [row["announced_ms"] for row in beats if row["announced_ms"] is not None]
    return median(requested) if requested else None


def _idle(
    capture: Recording, beats: Rows, intervals: dict[str, list[float]], study: Mapping[str, Any]
) -> Content:
    """Describe all messages of an idle cluster."""
    count: Counter[tuple[str, str]] = Counter()  # (sender, op)
    size: Counter[tuple[str, str]] = Counter()
    for row in capture.rows("messages"):
        if capture.during(row["time_ns"]):
            key = group(row["source"]), row["op"] or row["kind"]
            count[key] += 1
            size[key] += row["bytes"]
    common, total = count.most_common(), count.total()
    shares = {f"{sender}: {op}": 100 * n / total for (sender, op), n in common[:OPS_SHOWN]}
    caption = f"All {total:,} messages of {format_number(capture.window_s)} idle seconds, by sender."
    rows = [
        [f"{sender}: {op}", f"{n:,}", format_number(n / capture.window_s), f"{size[sender, op]:,}"]
        for (sender, op), n in common
    ]
    heartbeats = count["workers", HEARTBEAT] + count["scheduler", f"reply to {HEARTBEAT}"]
    sentences = [
        _rhythm(capture, beats, intervals),
        _study_error(_requested_ms(beats), study),
        f"Of all messages {format_number(100 * heartbeats / total)} % are heartbeats and replies.",
    ]
    return Content(
        [sentence for sentence in sentences if sentence],
        {"idle": (caption, figures.shares(shares, {}, "% of all messages"))},
        [TextTable("Messages of an idle cluster", ["message", "number", "per second", "bytes"], rows)],
    )


def _rhythm(capture: Recording, beats: Rows, intervals: dict[str, list[float]]) -> str:
    every = [ms for own in intervals.values() for ms in own]
    if not every:
        return ""
    low, high = np.quantile(every, (0.05, 0.95))
    sizes = [median(row[key] for row in beats if row[key]) for key in ("request_bytes", "reply_bytes")]
    return (
        "In an idle cluster, each worker sends the scheduler a heartbeat every"
        f" {format_number(median(every))} ms (90 % within {format_number(low)} to {format_number(high)} ms):"
        f" {sizes[0]:.0f} bytes, answered by {sizes[1]:.0f}. With headers and ACKs, each worker and the"
        f" scheduler exchange {format_number(_bytes_per_s(capture, len(intervals)))} bytes per second."
    )


def _study_error(requested_ms: float | None, study: Mapping[str, Any]) -> str:
    if requested_ms is None:
        return ""
    return (
        f"The scheduler requests {requested_ms:g} ms; the study printed {study['interval_printed_ms']:,} ms"
        f" for that field by mistake: its bytes mean {study['interval_true_ms']} ms."
    )


def _bytes_per_s(capture: Recording, workers: int) -> float:
    """Return the IP bytes per second between the scheduler and one worker, both ways."""
    ends = {"workers", "scheduler"}
    between = [t.ip_bytes for t in capture.summary.traffic if {group(t.source), group(t.destination)} == ends]
    return sum(between) / capture.window_s / workers
