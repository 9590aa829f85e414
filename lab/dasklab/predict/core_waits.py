"""Waiting for a core: what a scenario takes over from the calibrated trial, and what it simulates.

Recorded durations contain the time in which a process waited for a core. There are three cases:

    unchanged   The cores are unknown and no other cores are requested. Durations keep the recorded waiting.
    simulated   The number of shared cores is known or requested. Durations are reduced to what a core
                computed; the simulation makes processes wait for these cores.
    requested   Waiting is requested as a ratio (``starved``), or is 0 because each machine has its own cores.
                Durations are reduced to what a core computed, plus that ratio of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dasklab.errors import LabError
from dasklab.predict.calibration import Calibration, TaskSamples
from dasklab.sim.costs import IDLE_WORKER, Costs, Role
from dasklab.sim.program import Record


@dataclass(frozen=True)
class CoreWaits:
    """A trial's calibration and the requested cores (see `SimulationSettings`)."""

    calibration: Calibration
    cores: int | None
    cores_each: int | None
    starved: float | None

    @property
    def requested(self) -> bool:
        """Whether other cores, or another waiting for them, are requested."""
        return self.cores is not None or self.cores_each is not None or self.starved is not None

    @property
    def unchanged(self) -> bool:
        """Whether durations keep the recorded waiting."""
        return self.calibration.cores is None and not self.requested

    def shared_cores(self, workers: int) -> float | None:
        """Return the cores that all machines share, without what additional workers take when they are idle.

        Raises:
            LabError: the additional workers take all of them.
        """
        cores = self.cores if self.requested else self.calibration.cores
        additional = workers - self.calibration.workers if self.calibration.workers else 0
        if cores is None or additional <= 0:
            return cores
        if cores <= additional * IDLE_WORKER:
            raise LabError(
                f"--set workers={workers}: idle workers alone would take all of {cores:.1f} cores",
                "request more cores: --set cores=N for all machines, or cores_each=N",
            )
        return cores - additional * IDLE_WORKER

    def driver_s(self) -> float:
        """Return the client's time: as recorded (nothing else runs then), unless other load is requested."""
        if self.starved is None:
            return self.calibration.driver_s
        return self.calibration.driver_s * self._ratio(self.starved)

    def handoff_s(self, worker_speed: float) -> float:
        """Return a task's handoff: as recorded, or with the requested waiting in place of its own."""
        ratio = self._ratio(self.starved or 0.0) if self.requested else 1.0
        return self.calibration.handoff_s * ratio / worker_speed

    def records(self, tasks: TaskSamples, worker_speed: float) -> tuple[Record, ...]:
        """Return what the tasks of one prefix do: seconds of a core, seconds of waiting, bytes."""
        if self.unchanged and worker_speed == 1:
            return tuple((0.0, seconds, nbytes) for seconds, nbytes in tasks.samples)
        cpu = tasks.cpu_share / worker_speed
        neither = max(0.0, 1 - tasks.cpu_share * (1 + self.calibration.starved))
        idle = neither + cpu * self._starved()
        return tuple((seconds * cpu, seconds * idle, nbytes) for seconds, nbytes in tasks.samples)

    def costs(self, scheduler_speed: float, worker_speed: float) -> dict[Role, Costs]:
        """Return the costs of messages on cores of these speeds."""
        speeds: dict[Role, float] = {"scheduler": scheduler_speed, "worker": worker_speed}
        factors = {role: self._loop_factor(role) / speeds.get(role, 1.0) for role in self.calibration.costs}
        return {
            role: Costs(op_s=cost.op_s * factors[role], byte_s=cost.byte_s * factors[role])
            for role, cost in self.calibration.costs.items()
        }

    def _starved(self) -> float:
        """Return the seconds of waiting per second on a core that durations contain."""
        return self.calibration.starved if self.unchanged else self.starved or 0.0

    def _ratio(self, starved: float) -> float:
        """Return the factor on a duration if its waiting is replaced."""
        return (1 + starved) / (1 + self.calibration.starved)

    def _loop_factor(self, role: Role) -> float:
        """Return the factor on an event loop's busy time: its CPU share, plus the requested waiting."""
        if self.unchanged:
            return 1.0
        cpu = self.calibration.loop_cpu.get(role, 1 / (1 + self.calibration.starved))
        return cpu * (1 + self._starved())
