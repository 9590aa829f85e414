"""Notices machines that end without being asked to from here: a guest's own power-off, a crash, a kill."""

from __future__ import annotations

import threading

from lab.minipve.node import Node
from lab.minipve.vm import machines

_PERIOD_S = 1.0


class Watch(threading.Thread):
    """Looks at the VMs' processes once a second; what has gone is logged and tidied up."""

    def __init__(self, node: Node) -> None:
        super().__init__(name="watch", daemon=True)
        self.node = node
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def run(self) -> None:
        """The thread's loop."""
        while not self._stopped.wait(_PERIOD_S):
            for vmid in self.node.vms.vmids():
                machines.tidy(self.node, vmid)
