"""The study's figures 3 to 7: what workers and scheduler say when nobody asks for anything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from daskwire.tables.exchange import Packet, flat, shortened

from dasklab.model.number_format import format_number
from dasklab.report import figures
from dasklab.report.captures import drawings
from dasklab.report.captures.content import Content, TextTable, group
from dasklab.results.storage.decode import HEARTBEAT, Heartbeat
from dasklab.results.storage.recording import Recording, Rows

OPS_SHOWN = 10


def describe(capture: Recording, study: Mapping[str, Any]) -> Content:
    """The dialogue beside the study's, its intervals by worker and, of an idle cluster, all that is said."""
    example = capture.summary.heartbeat
    if example is None:
        return Content()
    beats = [row for row in capture.rows("heartbeats") if capture.during(row["time_ns"])]
    dialogues = drawings.dialogues(example.packets, _their_packets(study))
    found = {"heartbeat": (_dialogue_caption(beats), dialogues)}
    intervals, asked_ms = _intervals(beats), _asked_ms(beats)
    if intervals:
        figure = drawings.intervals(intervals, asked_ms, study["interval_printed_ms"])
        found["intervals"] = (_interval_caption(study), figure)
    content = Content([], found, [_fields(example, study)])
    return _idle(capture, beats, intervals, study) + content if capture.idle else content


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


def _fields(example: Heartbeat, study: Mapping[str, Any]) -> TextTable:
    """What the heartbeat and its reply hold, field by field."""
    rows = []
    for title, ours in (("request", example.request), ("reply", example.reply)):
        theirs = {path: shortened(value) for path, value in flat(study[title]).items()}
        for key in dict.fromkeys([*ours, *theirs]):
            rows.append([f"{title}: {key}", ours.get(key, ""), theirs.get(key, "")])
    heads = ["field", "here", "2019 study"]
    return TextTable("What a heartbeat says, field by field", heads, rows, numbers=False)


def _asked_ms(beats: Rows) -> float | None:
    """The interval that the scheduler's replies ask for."""
    asked = [row["announced_ms"] for row in beats if row["announced_ms"] is not None]
    return median(asked) if asked else None


def _idle(
    capture: Recording, beats: Rows, intervals: dict[str, list[float]], study: Mapping[str, Any]
) -> Content:
    """All that an idle cluster says."""
    count: Counter[tuple[str, str]] = Counter()  # (sender, op)
    size: Counter[tuple[str, str]] = Counter()
    for row in capture.rows("messages"):
        if capture.during(row["time_ns"]):
            key = group(row["source"]), row["op"] or row["kind"]
            count[key] += 1
            size[key] += row["bytes"]
    common, total = count.most_common(), count.total()
    shares = {f"{who}: {op}": 100 * n / total for (who, op), n in common[:OPS_SHOWN]}
    caption = f"All {total:,} messages of {format_number(capture.window_s)} idle seconds, by sender."
    rows = [
        [f"{who}: {op}", f"{n:,}", format_number(n / capture.window_s), f"{size[who, op]:,}"]
        for (who, op), n in common
    ]
    mine = count["workers", HEARTBEAT] + count["scheduler", f"reply to {HEARTBEAT}"]
    sentences = [
        _rhythm(capture, beats, intervals),
        _error(_asked_ms(beats), study),
        f"Of all messages {format_number(100 * mine / total)} % are heartbeats and replies.",
    ]
    return Content(
        [sentence for sentence in sentences if sentence],
        {"idle": (caption, figures.shares(shares, {}, "% of all messages"))},
        [TextTable("What an idle cluster says", ["message", "number", "a second", "bytes"], rows)],
    )


def _rhythm(capture: Recording, beats: Rows, intervals: dict[str, list[float]]) -> str:
    every = [ms for mine in intervals.values() for ms in mine]
    if not every:
        return ""
    low, high = np.quantile(every, (0.05, 0.95))
    sizes = [median(row[key] for row in beats if row[key]) for key in ("request_bytes", "reply_bytes")]
    return (
        "In an idle cluster, each worker sends the scheduler a heartbeat every"
        f" {format_number(median(every))} ms (90 % within {format_number(low)} to {format_number(high)} ms):"
        f" {sizes[0]:.0f} bytes, answered by {sizes[1]:.0f}. With headers and ACKs, each worker and the"
        f" scheduler exchange {format_number(_chatter(capture, len(intervals)))} bytes per second."
    )


def _error(asked_ms: float | None, study: Mapping[str, Any]) -> str:
    if asked_ms is None:
        return ""
    return (
        f"The scheduler asks for {asked_ms:g} ms; the study printed {study['interval_printed_ms']:,} ms for"
        f" that field, wrongly: its bytes say {study['interval_true_ms']}."
    )


def _chatter(capture: Recording, workers: int) -> float:
    """IP bytes a second between the scheduler and each worker, both ways."""
    ends = {"workers", "scheduler"}
    between = [t.ip_bytes for t in capture.summary.traffic if {group(t.source), group(t.destination)} == ends]
    return sum(between) / capture.window_s / workers
