"""Watch the guests: clean up after those that end by themselves (power-off, crash), and sample the load."""

from __future__ import annotations

import logging
import threading
import time

from minipve.base.errors import FAILURES, ApiError, text_of
from minipve.endpoint import sampling
from minipve.guests.lxc import running as containers
from minipve.guests.vm import machines
from minipve.node import history
from minipve.node.node import Node

_PERIOD_S = 1.0
log = logging.getLogger(__name__)


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
                    sampling.sample(self.node, time.time())
            except (ApiError, *FAILURES) as failed:  # the next look may succeed
                log.warning("watching the guests: %s", text_of(failed))
