"""Which of Dask's settings may help a trial, searched in simulation: one at a time, then pairs of the best.

Every candidate meets the same seeds as the trial as it was: the same durations of the same tasks, the same
order of sets. A seed's gain is what of its own time is saved; intervals are Student's over seeds. What
simulations are missed by is not in them: candidates are no advice before a lab has confirmed them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from dasklab.model.dask_settings import defaults, flatten
from dasklab.model.document import Document
from dasklab.model.experiment import merge
from dasklab.model.files import Outcome
from dasklab.model.nic import BYTES_PER_MBIT
from dasklab.model.trial import Trial
from dasklab.predict import farm
from dasklab.predict.calibration import Calibration, dealt
from dasklab.predict.sensitivity import MOST_RUNS, run_s, spread
from dasklab.predict.whatif import scenario
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import store
from dasklab.sim.scenario import Scenario

SATURATION = "distributed.scheduler.worker-saturation"
BANDWIDTH = "distributed.scheduler.bandwidth"
CONNECTIONS = "distributed.worker.connections"
LEVELS: dict[str, tuple[Any, ...]] = {  # beside the default
    SATURATION: (1.0, 1.5, "inf"),
    "distributed.scheduler.work-stealing": (False,),
    "distributed.scheduler.work-stealing-interval": ("100ms",),
    "distributed.scheduler.unknown-task-duration": ("10ms",),
    "distributed.worker.transfer.message-bytes-limit": ("5MB", "500MB"),
}
COUNTS = (1, 4, 16, 64, 256)  # of connections
BELIEFS = (0.1, 1.0)  # of a worker's rate
PAIRED = 3  # settings whose best levels are tried together
CONFIRMED = 3  # candidates that a lab is asked about
NOT_SEARCHED = {
    "compression": "a simulated message has no content",
    "memory limits": "no simulated memory fills",
    "layout (processes x threads)": "the calibration holds for the one that was measured",
    "chunk size": "other chunks are other tasks, which the calibration has not seen",
}


@dataclass(frozen=True)
class Candidate:
    """Settings of Dask by their full names, and their values."""

    settings: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """Short: ``worker-saturation=1.0, connections.incoming=1``."""
        return ", ".join(f"{_short(name)}={_word(value)}" for name, value in self.settings)

    @property
    def changes(self) -> dict[str, Any]:
        """As an experiment has them."""
        return reduce(merge, (_nested(f"dask.{name}", value) for name, value in self.settings), {})

    def __add__(self, other: Candidate) -> Candidate:
        """Both."""
        return Candidate(self.settings + other.settings)


@dataclass(frozen=True)
class Ranked:
    """A candidate and which share of the time it saves."""

    candidate: Candidate
    gain: Interval


@dataclass(frozen=True)
class Search:
    """A run's simulated seconds as it was, and all candidates, the best first."""

    seconds: Interval
    ranked: tuple[Ranked, ...]

    @property
    def best(self) -> list[Candidate]:
        """Those to confirm: they save time on average, and a pair more than either of its halves."""
        gains = {one.candidate: one.gain.value for one in self.ranked}
        return [one for one, gain in gains.items() if gain > _halves(one, gains)][:CONFIRMED]


class Searched(Document):
    """Beside a trial: seconds of a run by the digest of what was simulated, so that it is simulated once."""

    FILE: ClassVar[str] = "searched.json"

    seconds: dict[str, float] = {}


def singles(trial: Trial, calibration: Calibration) -> list[Candidate]:
    """Each other level of each setting that may matter here."""
    asked = scenario(trial, calibration, seed=0)
    now = dict(defaults()) | dict(flatten(asked.dask))
    levels = LEVELS | dict(_connections(asked, now)) | dict(_beliefs(asked))
    seated = dict(flatten(trial.resolved_scheduler.settings))  # on the hosts these go before the trial's
    return [
        Candidate(((name, value),))
        for name, values in levels.items()
        for value in values
        if value != now[name] and name not in seated
    ]


def search(
    directory: Path,
    trial: Trial,
    calibrations: Sequence[Calibration],
    seeds: Sequence[int],
    told: Callable[[Outcome], None] = lambda _: None,
) -> Search:
    """Simulate all candidates that ``directory`` does not know yet, and rank them.

    Raises:
        LabError: the trial cannot be simulated.
    """

    def seconds(candidates: list[Candidate]) -> list[list[float]]:
        few = {"runs": min(trial.runs, MOST_RUNS)}
        asked = [
            scenario(trial, mine, merge(few, one.changes), seed=seed)
            for one in candidates
            for mine, seed in dealt(calibrations, seeds)
        ]
        took = iter(_simulated(directory, asked, told))
        return [[next(took) for _ in seeds] for _ in candidates]

    one_by_one = singles(trial, calibrations[0])
    now, *changed = seconds([Candidate(()), *one_by_one])
    ranked = _ranked(one_by_one, changed, now)
    both = pairs(ranked)
    return Search(spread(now), tuple(_sorted([*ranked, *_ranked(both, seconds(both), now)])))


def pairs(ranked: Sequence[Ranked]) -> list[Candidate]:
    """The best levels of the best settings, two at a time; who does not gain alone is not paired."""
    best: dict[str, Candidate] = {}
    for one in _sorted(ranked):
        if one.gain.value > 0:
            best.setdefault(one.candidate.settings[0][0], one.candidate)
    return [one + other for one, other in itertools.combinations(list(best.values())[:PAIRED], 2)]


def _sorted(ranked: Sequence[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda one: -one.gain.value)


def _ranked(candidates: list[Candidate], took: list[list[float]], now: list[float]) -> list[Ranked]:
    return [
        Ranked(candidate, spread([1 - after / before for before, after in zip(now, seconds, strict=True)]))
        for candidate, seconds in zip(candidates, took, strict=True)
    ]


def _halves(candidate: Candidate, gains: dict[Candidate, float]) -> float:
    """What is gained with less: by the better half of a pair, or by nothing."""
    halves = [Candidate((setting,)) for setting in candidate.settings]
    return max([0.0, *(gains[half] for half in halves if half != candidate)])


def _connections(asked: Scenario, now: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Numbers that differ here: a worker has one connection at a time to each of its peers."""
    peers = asked.workers - 1
    for way in ("outgoing", "incoming"):
        name = f"{CONNECTIONS}.{way}"
        least = {min(count, peers): count for count in reversed(COUNTS)}
        yield name, tuple(sorted(least[count] for count in least if count != min(now[name], peers)))


def _beliefs(asked: Scenario) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What a worker's link delivers, and less, where that is known."""
    rate = asked.rates_mbit.get("worker-1", 0.0) * BYTES_PER_MBIT
    if rate:
        yield BANDWIDTH, tuple(int(float(f"{rate * share:.2g}")) for share in BELIEFS)


def _simulated(directory: Path, asked: list[Scenario], told: Callable[[Outcome], None]) -> list[float]:
    """Seconds of each; what is new is kept as soon as it is there."""
    seconds = dict((store.read(Searched, directory) or Searched()).seconds)
    digests = [_digest(one) for one in asked]
    new = {digest: one for digest, one in zip(digests, asked, strict=True) if digest not in seconds}
    coming = iter(new)

    def keep(outcome: Outcome) -> None:
        seconds[next(coming)] = run_s(outcome)
        store.write(directory, Searched(seconds=seconds))
        told(outcome)

    farm.simulate_all(new.values(), keep)
    return [seconds[digest] for digest in digests]


def _digest(asked: Scenario) -> str:
    """Of all that its outcome follows from."""
    said = f"{version('distributed')} {asked.model_dump_json()}"
    return blake2b(said.encode(), digest_size=16).hexdigest()


def _short(name: str) -> str:
    return name.removeprefix("distributed.").removeprefix("scheduler.").removeprefix("worker.")


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)
