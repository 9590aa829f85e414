"""Which of Dask's settings are recorded: those of this list, below ``distributed``.

They hold numbers, durations, sizes and switches, never a path, an argument or a name that a user chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NAMES = """
scheduler.allowed-failures scheduler.bandwidth scheduler.default-data-size
scheduler.events-cleanup-delay scheduler.idle-timeout scheduler.no-workers-timeout
scheduler.work-stealing scheduler.work-stealing-interval scheduler.worker-saturation
scheduler.rootish-taskgroup scheduler.rootish-taskgroup-dependencies scheduler.worker-ttl
scheduler.unknown-task-duration scheduler.validate scheduler.reuse-broadcast-comm
scheduler.locks.lease-validation-interval scheduler.locks.lease-timeout
scheduler.active-memory-manager.start scheduler.active-memory-manager.interval
scheduler.active-memory-manager.measure worker.multiprocessing-method worker.use-file-locking
worker.transfer.message-bytes-limit worker.connections.outgoing worker.connections.incoming
worker.daemon worker.validate worker.lifetime.duration worker.lifetime.stagger
worker.lifetime.restart worker.profile.enabled worker.profile.interval worker.profile.cycle
worker.profile.low-level worker.memory.recent-to-old-time worker.memory.rebalance.measure
worker.memory.rebalance.sender-min worker.memory.rebalance.recipient-max
worker.memory.rebalance.sender-recipient-gap worker.memory.transfer worker.memory.target
worker.memory.spill worker.memory.pause worker.memory.terminate worker.memory.max-spill
worker.memory.spill-compression worker.memory.monitor-interval client.direct-to-workers
client.heartbeat client.scheduler-info-interval adaptive.interval adaptive.target-duration
adaptive.minimum adaptive.maximum adaptive.wait-count deploy.lost-worker-timeout comm.retry.count
comm.retry.delay.min comm.retry.delay.max comm.compression comm.shard comm.offload
comm.default-scheme comm.socket-backlog comm.zstd.level comm.zstd.threads comm.timeouts.connect
comm.timeouts.tcp comm.require-encryption comm.tls.min-version comm.tls.max-version
comm.websockets.shard diagnostics.nvml diagnostics.cudf diagnostics.computations.max-history
diagnostics.computations.nframes diagnostics.erred-tasks.max-history p2p.comm.buffer
p2p.comm.concurrency p2p.comm.message-bytes-limit p2p.comm.retry.count p2p.comm.retry.delay.min
p2p.comm.retry.delay.max p2p.storage.buffer p2p.storage.disk p2p.threads
admin.large-graph-warning-threshold admin.tick.interval admin.tick.limit admin.tick.cycle
admin.max-error-length admin.log-length admin.low-level-log-length admin.system-monitor.interval
admin.system-monitor.log-length admin.system-monitor.disk admin.system-monitor.host-cpu
admin.system-monitor.gil.enabled admin.system-monitor.gil.interval admin.event-loop
"""
SETTINGS = frozenset(NAMES.split())


def settings(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings below a node of Dask's configuration that are recorded."""
    if isinstance(node, Mapping):
        for name, below in node.items():
            yield from settings(below, f"{path}.{name}" if path else str(name))
    elif path.replace("_", "-") in SETTINGS:
        yield path, node
