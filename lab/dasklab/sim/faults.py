"""What goes wrong in a simulation, at set moments after its first timed run began, and what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dask
from dask.utils import parse_timedelta

from dasklab.model.faults import Fault
from dasklab.model.files import ObservedFault

if TYPE_CHECKING:
    from dasklab.sim.cluster.cluster import Cluster

START_S = 0.65  # of a core, from the service's start to a worker's first task: in containers, one restart
FOUND = {"cut": "down", "kill": "inactive", "restart": "inactive"}  # in the words of the lab's own faults


class Faults:
    """Those of one cluster. ``seen`` is as in a trial's ``faults.json``, by host."""

    def __init__(self, cluster: Cluster, asked: Sequence[Fault]) -> None:
        self._cluster, self._asked = cluster, asked
        self.seen = {fault.host: ObservedFault(at_s=None, lasted_s=None, state="nothing") for fault in asked}

    def arm(self) -> None:
        """The first timed run begins."""
        kernel = self._cluster.kernel
        for fault in self._asked:
            assert not isinstance(fault.at_s, tuple), "it is drawn by whoever plans trials"
            kernel.at(kernel.now + fault.at_s, self._strike, fault, fault.at_s)

    def _strike(self, fault: Fault, at_s: float) -> None:
        kernel, host = self._cluster.kernel, fault.host
        self.seen[host] = ObservedFault(at_s=at_s, lasted_s=None, state=FOUND[fault.does])
        if fault.does == "cut":
            patience_s = parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp"))
            self._cluster.world.cut(host, fault.for_s or 0.0, patience_s)
        else:
            self._cluster.kill(host)
        if fault.for_s:
            kernel.at(kernel.now + fault.for_s, self._end, fault)

    def _end(self, fault: Fault) -> None:
        self.seen[fault.host] = self.seen[fault.host].model_copy(update={"lasted_s": fault.for_s})
        if fault.does == "restart":
            self._cluster.restart(fault.host, START_S)
