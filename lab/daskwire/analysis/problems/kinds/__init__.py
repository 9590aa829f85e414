"""The registry: all kinds of problems, one module each, in the order in which they are looked for.

To add one, copy ``busy_workers.py``, the smallest of them, and name the copy here. Its ``detect`` reads
``Evidence`` and yields findings. docs/reference/wire-problems.md is generated from this registry.
"""

from __future__ import annotations

from daskwire.analysis.problems.finding import Kind
from daskwire.analysis.problems.kinds import (
    asymmetric_path,
    blocked_worker_loop,
    bufferbloat,
    busy_workers,
    cross_traffic,
    delayed_acks,
    disordered_file,
    duplicate_ip,
    erred_tasks,
    far_worker,
    half_open_connection,
    icmp_errors,
    incomplete_capture,
    late_heartbeats,
    loss,
    lost_client,
    lost_scheduler,
    lost_worker,
    mid_stream_reset,
    mtu_black_hole,
    refused_connects,
    reordering,
    retransmission_timeouts,
    slow_connects,
    slow_link,
    slow_scheduler_loop,
    standstill,
    tls_failures,
    tls_without_keys,
    unanswered_connects,
    unanswered_dns,
    unanswered_handshake,
    undecoded_capture,
    unreachable_address,
    unregistered_worker,
    wrong_capture_point,
    wrong_interface,
    zero_window,
)

# Where a finding is a consequence of two others, it is listed with the one that is looked for first.
KINDS: dict[str, Kind] = {
    module.KIND.name: module.KIND
    for module in (
        undecoded_capture,
        tls_failures,
        tls_without_keys,
        wrong_capture_point,
        incomplete_capture,
        disordered_file,
        duplicate_ip,
        asymmetric_path,
        lost_scheduler,
        unreachable_address,
        wrong_interface,
        icmp_errors,
        unanswered_dns,
        mtu_black_hole,
        half_open_connection,
        loss,
        retransmission_timeouts,
        reordering,
        far_worker,
        cross_traffic,
        slow_link,
        bufferbloat,
        delayed_acks,
        refused_connects,
        unanswered_connects,
        slow_connects,
        unanswered_handshake,
        unregistered_worker,
        lost_client,
        mid_stream_reset,
        lost_worker,
        zero_window,
        slow_scheduler_loop,
        blocked_worker_loop,
        late_heartbeats,
        standstill,
        erred_tasks,
        busy_workers,
    )
}
