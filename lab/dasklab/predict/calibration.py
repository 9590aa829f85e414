"""The calibration: what a simulation takes over from a measured trial, as a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import ClassVar, Literal

from pydantic import Field

from dasklab.model.files import Amount, Count
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict
from dasklab.sim.costs import Costs, Role


class TaskSamples(Strict):
    """The recorded tasks of one key prefix.

    Attributes:
        samples: (seconds in a thread, bytes of the result) of each task.
        cpu_share: share of these seconds in which a core computed. The rest was waiting, also for a core.
    """

    samples: tuple[tuple[Amount, Count], ...]
    cpu_share: float = Field(ge=0, le=1)


class Calibration(Document):
    """The costs of one trial.

    Attributes:
        machine: the accelerator of the guests (kvm, tcg), or their kind (lxc).
        tasks: by key prefix.
        shuffled_bytes: what each transfer task of a peer-to-peer shuffle gave away.
        behind: for each worker, sorted by name: the largest number of results that any worker held before the
            repeats, minus its own.
        starved: seconds that workers waited for a core, per second that they had one.
        costs: what messages cost the event loops of each role.
        loop_cpu: by role, the share of the event loops' busy time in which a core computed.
        cores: cores that all machines shared, less those that other processes used. None if unknown;
            otherwise the simulation has as many, and waiting for them is simulated.
        driver_s: how long the client computed before the scheduler had a repeat's graph and after the last
            task.
        handoff_s: how long a task took from the event loop to its thread and back, beyond what is simulated.
        workers: how many the trial had; 0 in calibrations that do not say.
        rtt_ms: round trip of the idle network without requested delays.
        uncapped_mbit: throughput of links without a rate cap; 0 if it was not measured.
        burst_bytes: what a rate cap lets a machine send at once after a pause.
        queue_bytes: standing queue in front of a saturated link. It is measured if pings ran under load.
    """

    FILE: ClassVar[str] = "calibration.json"

    experiment: str
    trial: str
    cell: str
    machine: str
    versions: dict[str, str]
    tasks: dict[str, TaskSamples]
    shuffled_bytes: Amount = 0.0
    behind: tuple[Count, ...] = ()
    starved: Amount
    costs: dict[Role, Costs]
    loop_cpu: dict[Role, float] = {}
    cores: float | None = Field(default=None, gt=0)
    driver_s: float
    handoff_s: float = 0.0
    workers: Count = 0
    threads: Count
    rtt_ms: Amount
    uncapped_mbit: Amount
    burst_bytes: Amount
    queue_bytes: Amount
    queue_origin: Literal["measured", "assumed"] = "assumed"


def pair_with_seeds(
    calibrations: Sequence[Calibration], seeds: Iterable[int]
) -> Iterator[tuple[Calibration, int]]:
    """Pair each seed with one of the calibrations, in turn.

    Calibrations of equal trials differ, so predictions that use all of them vary as such trials do.
    """
    return zip(cycle(calibrations), seeds, strict=False)
