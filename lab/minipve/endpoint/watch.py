"""Watch the guests: clean up after those that end by themselves (power-off, crash), and sample the load."""

from __future__ import annotations

import logging
import os
import threading
import time

from minipve.base import host
from minipve.base.errors import FAILURES, ApiError, text_of
from minipve.guests.lxc import running as containers
from minipve.guests.rows import guest_row
from minipve.guests.vm import machines
from minipve.node import history
from minipve.node.node import Node

_PERIOD_S = 1.0
log = logging.getLogger(__name__)
_GUEST = ("maxmem", "maxdisk", "disk")
_RUNNING = ("cpu", "mem", "memhost", *host.PRESSURES)


class Watch(threading.Thread):
    """Cleans up after ended guests every second, and takes a sample every minute."""

    def __init__(self, node: Node) -> None:
        super().__init__(name="watch", daemon=True)
        self.node = node
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        self.node.enter()
        due = time.monotonic()
        while not self._stopped.wait(_PERIOD_S):
            try:
                for vmid in self.node.vms.vmids():
                    machines.reap(self.node, vmid)
                for vmid, config in self.node.containers.all():
                    containers.reap(vmid, config.options, self.node.paths)
                if time.monotonic() >= due:
                    due += history.PERIOD_S
                    _sample(self.node, time.time())
            except (ApiError, *FAILURES) as failed:  # the next look may succeed
                log.warning("watching the guests: %s", text_of(failed))


def _sample(node: Node, now: float) -> None:
    memory, swap, root, usage = host.memory(), host.swap(), host.root_filesystem(), node.storage.usage()
    load = {"loadavg": os.getloadavg()[0], "cpu": host.cpu_fraction(), "maxcpu": host.cpus()}
    load |= {"memtotal": memory["total"], "memused": memory["used"], "memavailable": memory["available"]}
    load |= {"swaptotal": swap["total"], "swapused": swap["used"]}
    node.history.add(now, "node", load | {"roottotal": root["total"], "rootused": root["used"]})
    node.history.add(now, "storage", {"total": usage["total"], "used": usage["used"]})
    names = {"node", "storage"}
    for vmid, config in node.guests():
        row, name = guest_row(node, vmid, config), f"{config.kind.name}/{vmid}"
        keys = _GUEST + (_RUNNING if "pid" in row else ())
        traffic = {key: row[key] for key in ("netin", "netout")} if "pid" in row else {}
        node.history.add(
            now,
            name,
            {key: row[key] for key in keys if row.get(key) is not None} | {"maxcpu": row["cpus"]},
            traffic,
        )
        names.add(name)
    node.history.keep(names)
