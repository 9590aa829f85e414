"""The tables that can be made from a capture: their columns, units and meaning. README.md shows the same.

Times named ``*_ns`` are nanoseconds since 1970 on the capturing machine's clock; ``*_s`` in ``tasks`` are
the workers' own clocks, in seconds since 1970. Nodes are named as in ``daskwire.dask.nodes``. What a capture
does not show is None (NaN).
"""

from __future__ import annotations

from typing import Any

Table = dict[str, list[Any]]
CLUSTER = "the cluster: its scheduler's address; empty where it is not known"

TABLES: dict[str, dict[str, str]] = {
    "messages": {
        "time_ns": "first byte on the wire",
        "end_ns": "last byte on the wire",
        "source": "sending node",
        "destination": "receiving node",
        "connection": "number of the connection",
        "kind": "handshake, request, reply, batch, text, cut (body not captured) or undecoded",
        "op": "the op; of a reply, 'reply to ' and the request's; of a batch, its ops joined by +",
        "ops": "number of ops",
        "bytes": "size with header",
        "frames": "number of frames",
        "body_bytes": "size of the frame that holds the message itself",
        "seen_bytes": "bytes of it that are in the capture (as lengths, whatever the snaplen)",
        "answer": "row of the reply to a request, of the request to a reply, -1 without",
        "cluster": CLUSTER,
    },
    "ops": {
        "time_ns": "first byte of its message",
        "source": "sending node",
        "destination": "receiving node",
        "op": "name",
        "key": "task key, where the op has one",
        "message": "row in messages",
        "cluster": CLUSTER,
    },
    "tasks": {
        "key": "task key",
        "worker": "node that ran it",
        "thread": "thread identifier on the worker",
        "sent_ns": "compute-task on the wire",
        "start_s": "start of compute, worker's clock",
        "stop_s": "end of compute, worker's clock",
        "finished_ns": "task-finished (or what else ended it here) on the wire",
        "wait_ms": "compute-task on the wire until start of compute (holds the clocks' difference)",
        "compute_ms": "time in compute",
        "transfer_ms": "time in transfers of its inputs",
        "disk_ms": "time in reading from and writing to disk",
        "report_ms": "end of compute until task-finished on the wire (holds the clocks' difference)",
        "nbytes": "size of the result in memory, bytes",
        "type": "type of the result",
        "outcome": "finished, erred, rescheduled, stolen, cancelled (freed before a report) or open",
        "cluster": CLUSTER,
    },
    "transfers": {
        "kind": "get_data, shuffle_receive, scatter, update_data or gather",
        "source": "node that sent the data",
        "destination": "node that received it",
        "request_ns": "request: first byte on the wire (for pushed data: of the message)",
        "serve_ms": "last byte of the request until first byte of the data (0 for pushed data)",
        "wire_ms": "first until last byte of the data",
        "receive_ms": "last byte of the data until the receiver's OK or reply",
        "keys": "number of keys",
        "bytes": "size of the message that carried the data",
        "payload_bytes": "of these, the data itself (as sent)",
        "memory_bytes": "the same in memory where sub-headers tell",
        "compression": "of the data: empty for none",
        "status": "OK, busy or what was answered",
        "mb_s": "bytes by wire_ms, in MB/s (empty when it came in one packet)",
        "rtt_min_ms": "smallest round trip of its connection, capture point to receiver",
        "cluster": CLUSTER,
    },
    "parts": {
        "transfer": "row in transfers",
        "key": "task key or name",
        "wire_bytes": "bytes as sent",
        "memory_bytes": "bytes in memory where the sub-header tells",
        "serializer": "dask, pickle, msgpack ...",
        "type": "Python type of the object",
        "dtype": "NumPy dtype",
        "shape": "NumPy shape",
        "compression": "empty for none",
    },
    "heartbeats": {
        "time_ns": "request: first byte on the wire",
        "worker": "whose",
        "interval_ms": "since the previous one of the same worker",
        "announced_ms": "interval that the scheduler asked for in its reply",
        "request_bytes": "size of the request",
        "reply_bytes": "size of the reply",
        "answer_ms": "last byte of the request until first byte of the reply (the scheduler's event loop)",
        "packets": "packets of the dialogue, from the request to the ACK of the reply",
        "cpu_pct": "worker's CPU",
        "memory_bytes": "worker's memory",
        "executing": "tasks executing",
        "latency_ms": "round trip that the worker itself measured (both event loops and the network)",
        "cluster": CLUSTER,
    },
    "matrix": {
        "source": "sending node",
        "destination": "receiving node",
        "packets": "TCP packets",
        "data_packets": "of these, with payload",
        "ip_bytes": "sum of IP lengths (headers, retransmissions and ACKs included)",
        "payload_bytes": "TCP payload, retransmissions included",
        "messages": "Dask messages",
        "message_bytes": "their size",
        "cluster": CLUSTER,
    },
    "series": {
        "second": "seconds since 1970, whole",
        "source": "sending node",
        "destination": "receiving node",
        "packets": "TCP packets in this second",
        "ip_bytes": "sum of IP lengths",
        "payload_bytes": "TCP payload",
        "cluster": CLUSTER,
    },
    "composition": {
        "source": "sending node",
        "op": "op, or 'reply to ' and the op, 'handshake', 'OK'",
        "ops": "how many",
        "messages": "messages that held at least one",
        "bytes": "their bytes; a batch's bytes are shared equally by its ops",
        "cluster": CLUSTER,
    },
    "gaps": {
        "worker": "worker",
        "thread": "thread",
        "previous": "task that ended",
        "key": "task that began next",
        "stop_s": "when the first ended, worker's clock",
        "gap_ms": "until the next began",
        "cluster": CLUSTER,
    },
    "problems": {
        "problem": "what it is, see README.md",
        "time_ns": "of the worst, where it has a time",
        "source": "sending node, or whose it is",
        "destination": "receiving node",
        "number": "how many",
        "worst_ms": "the longest of them",
        "what": "in words",
        "cluster": CLUSTER,
    },
    "packets": {
        "source": "sending node",
        "packets": "TCP packets",
        "data_packets": "with payload",
        "acks": "pure ACKs",
        "largest_bytes": "largest payload of one packet",
        "super_packets": "payload larger than an Ethernet frame can carry",
        "mean_bytes": "mean payload of data packets",
        "offload": "on when super-packets were captured (GSO/GRO): packet counts then say little",
        "cluster": CLUSTER,
    },
    "flows": {
        "source": "sending node",
        "source_port": "TCP port",
        "destination": "receiving node",
        "destination_port": "TCP port",
        "protocol": "tcp, tls or ws when Dask was found in it, else what was recognised, else empty",
        "generation": "Dask's framing",
        "packets": "packets",
        "copies": "packets that were captured more than once (flooding, several interfaces)",
        "payload_bytes": "TCP payload, retransmissions included",
        "stream_bytes": "length of the stream",
        "missing_bytes": "stream bytes that are not in the capture",
        "lost_bytes": "of these, acknowledged by the receiver: the capture lost them",
        "missing_messages": "about how many Dask messages are not in the capture at all",
        "began_before": "1 when the connection began before the capture (no SYN), else 0",
        "open_at_end": "1 when the connection was open when the capture ended (no FIN, no RST), else 0",
        "unframed_bytes": "seen bytes that could not be assigned to a message",
        "resyncs": "times the framing was lost and found again",
        "retransmitted": "segments sent again",
        "retransmitted_bytes": "their payload",
        "spurious": "retransmissions that the receiver called needless (D-SACK)",
        "out_of_order": "segments that came late, into a hole",
        "zero_windows": "times the sender of this flow could not take more",
        "rst_packets": "RST packets",
        "resets": "1 when its sender broke the connection off, by the first RST of it",
        "attempts": "SYNs of the connection",
        "handshake_ms": "SYN until ACK of the SYN-ACK: network round trip at connect",
        "rtt_min_ms": "smallest round trip, capture point to receiver",
        "rtt_p5_ms": "its 5th percentile (above it, delayed ACKs dominate)",
        "rtt_samples": "round trips measured",
        "cluster": CLUSTER,
    },
}


def empty(name: str) -> Table:
    """A table with its columns and no rows."""
    return {column: [] for column in TABLES[name]}


def add_row(table: Table, *values: Any) -> None:
    """Append one row, values in the order of the columns."""
    for column, value in zip(table.values(), values, strict=True):
        column.append(value)
