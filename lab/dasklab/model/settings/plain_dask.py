"""The settings of Dask that hold plain values: switches, numbers, sizes, durations and words from a list.

Dask imports what some other settings name (preloads, security loaders, policies of active memory management),
and many hold a path, an argument or a name that a user chose. So only the values below are recorded, and only
they are taken from a record or a run of somebody else. The recorder carries this module to the cluster: it
imports the standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

SWITCH = "(?!)"  # matches no text
NUMBER = r"[0-9]*\.?[0-9]+(e[+-]?[0-9]+)?"
QUANTITIES = (COUNT, SIZE, DURATION) = (
    f"{NUMBER}|inf",
    f"{NUMBER} ?([kKMGTP]i?)?B?",
    f"{NUMBER} {{0,2}}[A-Za-zµ]{{0,13}}",
)
COMPRESSION = "auto|blosc|lz4|snappy|zlib|zstd"
MEASURE = "managed|managed_in_memory|optimistic|process"

# What the text of a value may be -> the settings, below ``distributed``.
PLAIN = {
    SWITCH: """
        admin.system-monitor.disk admin.system-monitor.gil.enabled admin.system-monitor.host-cpu
        client.direct-to-workers comm.require-encryption diagnostics.cudf diagnostics.nvml p2p.storage.disk
        scheduler.active-memory-manager.start scheduler.reuse-broadcast-comm scheduler.validate
        scheduler.work-stealing worker.daemon worker.lifetime.restart worker.profile.enabled
        worker.profile.low-level worker.use-file-locking worker.validate""",
    COUNT: """
        adaptive.maximum adaptive.minimum adaptive.wait-count admin.log-length admin.low-level-log-length
        admin.max-error-length admin.system-monitor.log-length comm.retry.count comm.socket-backlog
        comm.tls.max-version comm.tls.min-version comm.zstd.level comm.zstd.threads
        diagnostics.computations.max-history diagnostics.computations.nframes
        diagnostics.erred-tasks.max-history p2p.comm.concurrency p2p.comm.retry.count p2p.threads
        scheduler.allowed-failures scheduler.rootish-taskgroup scheduler.rootish-taskgroup-dependencies
        scheduler.worker-saturation worker.connections.incoming worker.connections.outgoing
        worker.memory.pause worker.memory.rebalance.recipient-max worker.memory.rebalance.sender-min
        worker.memory.rebalance.sender-recipient-gap worker.memory.spill worker.memory.target
        worker.memory.terminate worker.memory.transfer""",
    SIZE: """
        admin.large-graph-warning-threshold comm.offload comm.shard comm.websockets.shard p2p.comm.buffer
        p2p.comm.message-bytes-limit p2p.storage.buffer scheduler.bandwidth scheduler.default-data-size
        worker.memory.max-spill worker.transfer.message-bytes-limit""",
    DURATION: """
        adaptive.interval adaptive.target-duration admin.system-monitor.gil.interval
        admin.system-monitor.interval admin.tick.cycle admin.tick.interval admin.tick.limit client.heartbeat
        client.scheduler-info-interval comm.retry.delay.max comm.retry.delay.min comm.timeouts.connect
        comm.timeouts.tcp deploy.lost-worker-timeout p2p.comm.retry.delay.max p2p.comm.retry.delay.min
        scheduler.active-memory-manager.interval scheduler.events-cleanup-delay scheduler.idle-timeout
        scheduler.locks.lease-timeout scheduler.locks.lease-validation-interval
        scheduler.no-workers-timeout scheduler.unknown-task-duration scheduler.work-stealing-interval
        scheduler.worker-ttl worker.lifetime.duration worker.lifetime.stagger worker.memory.monitor-interval
        worker.memory.recent-to-old-time worker.profile.cycle worker.profile.interval""",
    COMPRESSION: "comm.compression worker.memory.spill-compression",
    MEASURE: "scheduler.active-memory-manager.measure worker.memory.rebalance.measure",
    "fork|forkserver|spawn": "worker.multiprocessing-method",
    "inproc|tcp|tls|ws|wss": "comm.default-scheme",
    "asyncio|tornado|uvloop": "admin.event-loop",
}
TEXT_OF: Mapping[str, str] = {name: text for text, names in PLAIN.items() for name in names.split()}


def is_plain(name: str, value: Any) -> bool:
    """Return whether a setting below ``distributed`` is known to hold plain values, and this is one.

    Any of them may be unset or off: None or False.
    """
    text = TEXT_OF.get(name.replace("_", "-"))
    if text is None or value is None or value is False:
        return text is not None
    if isinstance(value, bool):
        return text == SWITCH
    if isinstance(value, int | float):
        return text in QUANTITIES
    return isinstance(value, str) and bool(re.fullmatch(text, value))


def plain_settings(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the plain settings of Dask's configuration ``distributed``, or of a node below it."""
    if isinstance(node, Mapping):
        for name, below in node.items():
            yield from plain_settings(below, f"{path}.{name}" if path else str(name))
    elif is_plain(path, node):
        yield path, node
