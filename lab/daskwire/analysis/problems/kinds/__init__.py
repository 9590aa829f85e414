"""The registry: all kinds of problems, in the order in which they are looked for.

To add one, write its `find_...` and its ``Kind`` beside those that read the same evidence, and name it
here. docs/reference/wire-problems.md is generated from this registry.
"""

from __future__ import annotations

from daskwire.analysis.problems.finding import Kind
from daskwire.analysis.problems.kinds import addresses, busy, capture, connects, ends, links, loss, tls

# Where a finding is a consequence of two others, it is listed with the one that is looked for first.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        capture.UNDECODED_CAPTURE,
        tls.TLS_FAILURES,
        tls.TLS_WITHOUT_KEYS,
        capture.WRONG_CAPTURE_POINT,
        capture.INCOMPLETE_CAPTURE,
        capture.DISORDERED_FILE,
        addresses.DUPLICATE_IP,
        capture.ASYMMETRIC_PATH,
        ends.LOST_SCHEDULER,
        addresses.UNREACHABLE_ADDRESS,
        addresses.WRONG_INTERFACE,
        connects.ICMP_ERRORS,
        addresses.UNANSWERED_DNS,
        loss.MTU_BLACK_HOLE,
        loss.HALF_OPEN_CONNECTION,
        loss.LOSS,
        loss.RETRANSMISSION_TIMEOUTS,
        loss.REORDERING,
        links.FAR_WORKER,
        links.CROSS_TRAFFIC,
        links.SLOW_LINK,
        links.BUFFERBLOAT,
        loss.DELAYED_ACKS,
        connects.REFUSED_CONNECTS,
        connects.UNANSWERED_CONNECTS,
        connects.SLOW_CONNECTS,
        connects.UNANSWERED_HANDSHAKE,
        connects.UNREGISTERED_WORKER,
        ends.LOST_CLIENT,
        ends.MID_STREAM_RESET,
        ends.LOST_WORKER,
        busy.ZERO_WINDOW,
        busy.SLOW_SCHEDULER_LOOP,
        busy.BLOCKED_WORKER_LOOP,
        busy.LATE_HEARTBEATS,
        busy.STANDSTILL,
        busy.ERRED_TASKS,
        busy.BUSY_WORKERS,
    )
}
