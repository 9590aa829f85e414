"""Inject a trial's faults into a simulated cluster, and record what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dask
from dask.utils import parse_timedelta

from dasklab.model.files import ObservedFault
from dasklab.model.settings.faults import Fault

if TYPE_CHECKING:
    from dasklab.sim.cluster.cluster import SimCluster

# CPU seconds from the start of the worker's service to its registration: one restart, measured in containers
START_S = 0.65
# What the lab reports about the link or the service while the fault lasts
STATES = {"cut": "down", "kill": "inactive", "restart": "inactive"}


class FaultInjector:
    """The faults of one simulated cluster.

    Attributes:
        observed: by host, what happened, in the form of a trial's ``faults.json``.
    """

    def __init__(self, cluster: SimCluster, faults: Sequence[Fault]) -> None:
        self._cluster, self._faults = cluster, faults
        self.observed = {
            fault.host: ObservedFault(at_s=None, lasted_s=None, state="nothing") for fault in faults
        }

    def arm(self) -> None:
        """Plan all faults, counted from now: the start of the first timed repeat."""
        kernel = self._cluster.kernel
        for fault in self._faults:
            assert not isinstance(fault.at_s, tuple), "the moment is drawn when trials are planned"
            kernel.at(kernel.now + fault.at_s, self._begin, fault, fault.at_s)

    def _begin(self, fault: Fault, at_s: float) -> None:
        kernel, host = self._cluster.kernel, fault.host
        self.observed[host] = ObservedFault(at_s=at_s, lasted_s=None, state=STATES[fault.does])
        if fault.does == "cut":
            tcp_timeout_s = parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp"))
            self._cluster.fabric.cut(host, fault.for_s or 0.0, tcp_timeout_s)
        else:
            self._cluster.kill(host)
        if fault.for_s:
            kernel.at(kernel.now + fault.for_s, self._end, fault)

    def _end(self, fault: Fault) -> None:
        self.observed[fault.host] = self.observed[fault.host].model_copy(update={"lasted_s": fault.for_s})
        if fault.does == "restart":
            self._cluster.restart(fault.host, START_S)
