"""How complete a capture is, and what always holds of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskwire.base.arrays import NONE, Ints, equally_long, require
from daskwire.base.schema import TABLES, Table
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.dask.conversations import Conversation
from daskwire.decoder.net.health import acknowledged

# Measure how complete a capture is: its bytes, its messages, and its connections.
#
# TCP numbers bytes, so missing bytes are counted exactly. Messages have no numbers, so the number of
# missing
# messages is an estimate. Every gap between known messages of a stream contained at least one message. The
# number follows from the mean size of the flow's messages that would fit into the gap (if they are few, of
# all
# messages), and is limited by the number of ACKs within the gap.
#
# A connection that began before the capture has sent at least Dask's handshake in each direction. What else
# it
# sent before the capture, and what open connections send after it, is unknown: such connections are
# counted.

PLAIN = "tcp"
ENCRYPTED = {"tls", "ws"}  # may carry Dask but could not be decoded
WEIGHT = 2  # the mean size of all messages counts like this many messages of the flow


def completeness(capture: Capture) -> dict[str, Any]:
    """Return the shares (0 to 1, None of nothing) and counts that describe the completeness of a capture."""
    flows, all_messages = capture.table("flows"), capture.messages
    dask = [i for i, generation in enumerate(flows["generation"]) if generation]
    stream, missing, lost, unframed, resyncs, messages = (
        sum(flows[name][i] for i in dask)
        for name in (
            "stream_bytes", "missing_bytes", "lost_bytes", "unframed_bytes", "resyncs", "missing_messages",
        )
    )  # fmt: skip
    decoded = int((~np.isin(all_messages.kind, (MessageKind.CUT, MessageKind.UNDECODED))).sum())
    connections = np.array(sorted(capture.conversations), np.int64)
    return {
        "stream_seen": share(stream - missing, stream),
        "lost_by_capture_bytes": lost,
        "framed": share(stream - missing - unframed, stream - missing),
        "resyncs": resyncs,
        "decoded": share(decoded, len(all_messages)),
        "whole": share(int(all_messages.complete.sum()), len(all_messages)),
        "messages_seen": share(len(all_messages), len(all_messages) + messages),
        "messages_missing": messages,
        "began_before": int((~capture.lives.opened[connections]).sum()),
        "open_at_end": int((~capture.lives.closed[connections]).sum()),
        "unrecognised": _unrecognised(capture),
    }


def is_complete(capture: Capture, figures: Mapping[str, Any]) -> bool:
    """Return whether nothing is, or may be, missing: bytes, messages, connections or parts of files.

    Args:
        capture: the capture.
        figures: its completeness.
    """
    shares = ("stream_seen", "framed", "decoded", "whole", "messages_seen")
    whole = all(figures[name] == 1.0 for name in shares)
    partial = any(figures[name] for name in ("began_before", "open_at_end", "unrecognised"))
    encrypted = ENCRYPTED & set(capture.other_protocols.values())
    damaged = any(file.progress.problem or file.progress.dropped for file in capture.files)
    return whole and not (partial or encrypted or damaged)


def _unrecognised(capture: Capture) -> int:
    """Count the connections of unknown protocol that began before the capture.

    TLS and WebSocket can only be recognised by their first bytes.
    """
    segments, recognised = capture.segments, {*capture.conversations, *capture.other_protocols}
    active = np.unique(segments.flow[segments.length > 0] >> 1).tolist()
    return sum(c not in recognised and not capture.lives.opened[c] for c in active)


def share(part: int, whole: int) -> float | None:
    """Divide. The result is 1.0 only if ``part`` equals ``whole``."""
    if not whole:
        return None
    return 1.0 if part == whole else min(round(part / whole, 6), 0.999999)


def missing_messages(capture: Capture) -> Ints:
    """Estimate the number of completely missing messages, per flow."""
    result = np.zeros(len(capture.sources), np.int64)
    messages = capture.messages
    handshakes = np.bincount(messages.flow[messages.kind == MessageKind.HANDSHAKE], minlength=len(result))
    # early versions of G1 have no handshake
    has_handshake = capture.generation != "G1" or bool(handshakes.any())
    all_sizes = _Sizes(messages.size)
    for connection, conversation in capture.conversations.items():
        began_before = not capture.lives.opened[connection]
        for direction in (0, 1):
            flow = 2 * connection + direction
            result[flow] = _missing_in_gaps(capture, conversation, direction, all_sizes)
            result[flow] += began_before and has_handshake and not handshakes[flow]
    return result


class _Sizes:
    """Sorted sizes of messages, with their running sums."""

    def __init__(self, sizes: Ints) -> None:
        self._ordered = np.sort(sizes)
        self._sums = np.append(0, np.cumsum(self._ordered))

    def up_to(self, largest: Ints) -> tuple[Ints, Ints]:
        """Return the number of sizes that are at most ``largest``, and their sum."""
        number = np.searchsorted(self._ordered, largest, side="right").astype(np.int64)
        return number, self._sums[number]


def _missing_in_gaps(capture: Capture, conversation: Conversation, direction: int, all_sizes: _Sizes) -> int:
    framed, extent = conversation.framed.get(direction), capture.extents
    if framed is None and direction in conversation.streams:
        return 0  # its beginning was captured and is not Dask
    flow = 2 * conversation.connection + direction
    rows = framed.table() if framed is not None else np.zeros((0, 5), np.int64)
    begin, end = int(extent.begin[flow]), int(extent.end[flow])
    if conversation.protocol == PLAIN:
        message_ends = np.concatenate([[begin], np.cumsum(rows[:, :2], axis=1)[:, 1]])
        first, last = np.maximum.accumulate(message_ends), np.append(rows[:, 0], end)
    else:  # message positions are not TCP's, and nothing after a hole can be decoded
        first, last = extent.hole[flow : flow + 1], extent.end[flow : flow + 1]
    first, last = first[last > first], last[last > first]
    if not len(first):
        return 0
    acks = acknowledged(capture.segments, capture.lanes, capture.pieces, flow)
    acks_in_gap = np.searchsorted(acks, last, side="right") - np.searchsorted(acks, first, side="right")
    gaps = last - first
    own, own_bytes = _Sizes(rows[:, 1]).up_to(gaps)
    others, other_bytes = all_sizes.up_to(gaps)
    mean = (own_bytes + WEIGHT * other_bytes / np.maximum(others, 1)) / (own + WEIGHT)
    by_size = np.rint(gaps / np.where(others > 0, mean, gaps))
    number = int(np.clip(by_size, 1, np.maximum(acks_in_gap, 1)).sum())
    opposite = conversation.framed.get(direction ^ 1) if number and not len(rows) else None
    return max(number, len(opposite.table())) if opposite else number  # requests have replies


# What always holds of the tables: how rows are sorted, what identifies one, where a value may be unknown.


@dataclass(frozen=True)
class Rows:
    """What always holds of the rows of a table.

    Attributes:
        sorted_by: columns by which the rows are sorted.
        unique: columns that together identify a row; empty if rows may repeat.
        optional: columns with None where the value is unknown.
        signed: columns with numbers that may be negative: differences between clocks, or NONE (-1).
        refers: column -> the table of which it contains row numbers.
    """

    sorted_by: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    refers: Mapping[str, str] = field(default_factory=dict)


ROWS: dict[str, Rows] = {
    "messages": Rows(("time_ns",), signed=frozenset({"answer"}), refers={"answer": "messages"}),
    "ops": Rows(("message",), optional=frozenset({"key"}), refers={"message": "messages"}),
    "tasks": Rows(
        optional=frozenset({
            "thread", "sent_ns", "start_s", "stop_s", "finished_ns", "wait_ms", "compute_ms", "transfer_ms",
            "disk_ms", "report_ms", "nbytes", "type",
        }),
        signed=frozenset({"wait_ms", "report_ms"}),
    ),
    "transfers": Rows(
        ("request_ns",),
        optional=frozenset({"receive_ms", "memory_bytes", "status", "mb_s", "rtt_min_ms"}),
        signed=frozenset({"serve_ms", "wire_ms", "receive_ms"}),
    ),
    "parts": Rows(
        ("transfer",),
        optional=frozenset({"memory_bytes", "serializer", "type", "dtype", "shape", "compression"}),
        refers={"transfer": "transfers"},
    ),
    "heartbeats": Rows(
        ("time_ns",),
        optional=frozenset({
            "interval_ms", "announced_ms", "reply_bytes", "answer_ms", "cpu_pct", "memory_bytes", "executing",
            "latency_ms",
        }),
        signed=frozenset({"answer_ms"}),
    ),
    "matrix": Rows(("cluster", "source", "destination"), ("cluster", "source", "destination")),
    "series": Rows(
        ("second", "cluster", "source", "destination"), ("second", "cluster", "source", "destination")
    ),
    "composition": Rows(("cluster", "source"), ("cluster", "source", "op")),
    "gaps": Rows(signed=frozenset({"gap_ms"})),
    "nodes": Rows(optional=frozenset({"registered_ns", "left_ns"})),
    "reach": Rows(
        ("cluster", "source", "destination", "address", "port"),
        ("cluster", "source", "destination", "address", "port"),
        optional=frozenset({"handshake_ms", "rtt_ms"}),
    ),
    "problems": Rows(optional=frozenset({"begin_ns", "end_ns"})),
    "packets": Rows(("cluster", "source"), ("cluster", "source")),
    "flows": Rows(optional=frozenset({"handshake_ms", "rtt_min_ms", "rtt_p5_ms"})),
}  # fmt: skip


def validate(tables: Mapping[str, Table]) -> None:
    """Check what always holds of the tables of a capture.

    Raises:
        InvariantError: something does not hold.
    """
    lengths = {name: len(next(iter(table.values()))) for name, table in tables.items()}
    for name, table in tables.items():
        rules = ROWS[name]
        require(list(table) == list(TABLES[name]), f"{name}: the columns are those of TABLES")
        require(equally_long(table.values()), f"{name}: all columns have the same length")
        for column, values in table.items():
            _validate_column(f"{name}.{column}", values, column in rules.optional, column in rules.signed)
        keys = list(zip(*(table[column] for column in rules.sorted_by), strict=True))
        require(keys == sorted(keys), f"{name} is sorted by {', '.join(rules.sorted_by)}")
        keys = list(zip(*(table[column] for column in rules.unique), strict=True))
        require(len(keys) == len(set(keys)), f"{name}: {', '.join(rules.unique)} are unique")
        for column, other in rules.refers.items():
            is_row = [value == NONE or 0 <= value < lengths[other] for value in table[column]]
            require(np.array(is_row, bool), f"{name}.{column} is a row of {other}")


def _validate_column(name: str, values: list[Any], optional: bool, signed: bool) -> None:
    """Check that values are known where they must be, and that numbers are finite and not negative."""
    is_known = np.array([value is not None for value in values], bool)
    require(is_known | optional, f"{name} is never None")
    is_number = np.array([isinstance(value, int | float) for value in values], bool)
    numbers = np.array([value for value in values if isinstance(value, int | float)], float)
    require(np.isfinite(numbers), f"{name} is finite")
    require((numbers >= 0) | signed, f"{name} is not negative")
    is_text = np.array([isinstance(value, str) for value in values], bool)
    require(is_text | is_number | ~is_known, f"{name} has texts or numbers")
    require(not (is_text.any() and is_number.any()), f"{name} has either texts or numbers")
