"""Search for Dask settings that may help a trial, in simulation: one at a time, then the best ones in pairs.

Every candidate meets the same seeds as the unchanged trial: the same durations of the same tasks, the same
order of sets. A seed's gain is the share of its own time that is saved; intervals are Student's over seeds.
They do not contain the prediction error, so the result is candidates, not advice, until a lab has confirmed
them.
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
from dasklab.predict.calibration import Calibration, deal
from dasklab.predict.sensitivity import MAX_RUNS, mean_run_s, student
from dasklab.predict.whatif import scenario
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import store
from dasklab.sim.scenario import Scenario

SATURATION = "distributed.scheduler.worker-saturation"
BANDWIDTH = "distributed.scheduler.bandwidth"
CONNECTIONS = "distributed.worker.connections"
LEVELS: dict[str, tuple[Any, ...]] = {  # other than the default
    SATURATION: (1.0, 1.5, "inf"),
    "distributed.scheduler.work-stealing": (False,),
    "distributed.scheduler.work-stealing-interval": ("100ms",),
    "distributed.scheduler.unknown-task-duration": ("10ms",),
    "distributed.worker.transfer.message-bytes-limit": ("5MB", "500MB"),
}
CONNECTION_COUNTS = (1, 4, 16, 64, 256)
BANDWIDTH_ESTIMATES = (0.1, 1.0)  # as shares of the rate of a worker's link
PAIRED = 3  # settings whose best levels are tried in pairs
CONFIRMED = 3  # candidates that a lab measures
NOT_SEARCHED = {
    "compression": "a simulated message has no content",
    "memory limits": "simulated memory never fills",
    "layout (processes x threads)": "the calibration holds for the measured layout only",
    "chunk size": "other chunks are other tasks, which the calibration does not know",
}


@dataclass(frozen=True)
class Candidate:
    """Settings of Dask by their full names, and their values."""

    settings: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """A short name, for example ``worker-saturation=1.0, connections.incoming=1``."""
        return ", ".join(f"{_short(name)}={_text(value)}" for name, value in self.settings)

    @property
    def changes(self) -> dict[str, Any]:
        """The settings as an experiment has them."""
        return reduce(merge, (_nested(f"dask.{name}", value) for name, value in self.settings), {})

    def __add__(self, other: Candidate) -> Candidate:
        return Candidate(self.settings + other.settings)


@dataclass(frozen=True)
class Ranked:
    """A candidate, and the share of the time that it saves."""

    candidate: Candidate
    gain: Interval


@dataclass(frozen=True)
class Search:
    """The simulated duration of an unchanged run, and all candidates, the best first."""

    seconds: Interval
    ranked: tuple[Ranked, ...]

    @property
    def best(self) -> list[Candidate]:
        """The candidates worth measuring: they save time, and a pair more than either setting alone."""
        gains = {entry.candidate: entry.gain.value for entry in self.ranked}
        worthwhile = (candidate for candidate, gain in gains.items() if gain > _fallback(candidate, gains))
        return list(itertools.islice(worthwhile, CONFIRMED))


class SearchCache(Document):
    """Beside a trial: the mean duration of a run by its scenario's digest, to simulate each only once."""

    FILE: ClassVar[str] = "searched.json"

    seconds: dict[str, float] = {}


def singles(trial: Trial, calibration: Calibration) -> list[Candidate]:
    """Return a candidate for each other level of each setting that can make a difference in this trial."""
    unchanged = scenario(trial, calibration, seed=0)
    current = dict(defaults()) | dict(flatten(unchanged.dask))
    levels = LEVELS | dict(_connections(unchanged, current)) | dict(_bandwidth_estimates(unchanged))
    # On the hosts these take precedence over the trial's settings
    of_variant = dict(flatten(trial.resolved_scheduler.settings))
    return [
        Candidate(((name, value),))
        for name, values in levels.items()
        for value in values
        if value != current[name] and name not in of_variant
    ]


def search(
    directory: Path,
    trial: Trial,
    calibrations: Sequence[Calibration],
    seeds: Sequence[int],
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Search:
    """Simulate all candidates and rank them.

    Args:
        directory: the trial's. Simulations are cached there, so that an interrupted search can be resumed.
        trial: the trial that was measured.
        calibrations: of this trial or of equal ones; the seeds are dealt to them.
        seeds: seeds of the simulations of each candidate.
        on_outcome: called with each new outcome.

    Raises:
        LabError: the trial cannot be simulated.
    """

    def seconds(candidates: list[Candidate]) -> list[list[float]]:
        few_runs = {"runs": min(trial.runs, MAX_RUNS)}
        scenarios = [
            scenario(trial, calibration, merge(few_runs, candidate.changes), seed=seed)
            for candidate in candidates
            for calibration, seed in deal(calibrations, seeds)
        ]
        durations = iter(_simulated(directory, scenarios, on_outcome))
        return [[next(durations) for _ in seeds] for _ in candidates]

    single = singles(trial, calibrations[0])
    unchanged, *changed = seconds([Candidate(()), *single])
    ranked = _ranked(single, changed, unchanged)
    paired = pairs(ranked)
    return Search(student(unchanged), tuple(_sorted([*ranked, *_ranked(paired, seconds(paired), unchanged)])))


def pairs(ranked: Sequence[Ranked]) -> list[Candidate]:
    """Combine the best levels of the best settings in pairs, without settings that gain nothing alone."""
    best: dict[str, Candidate] = {}
    for entry in _sorted(ranked):
        if entry.gain.value > 0:
            best.setdefault(entry.candidate.settings[0][0], entry.candidate)
    return [first + second for first, second in itertools.combinations(list(best.values())[:PAIRED], 2)]


def _sorted(ranked: Sequence[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda entry: -entry.gain.value)


def _ranked(
    candidates: list[Candidate], durations: list[list[float]], unchanged: list[float]
) -> list[Ranked]:
    return [
        Ranked(
            candidate, student([1 - after / before for before, after in zip(unchanged, seconds, strict=True)])
        )
        for candidate, seconds in zip(candidates, durations, strict=True)
    ]


def _fallback(candidate: Candidate, gains: dict[Candidate, float]) -> float:
    """Return what fewer changes gain: 0, or for a pair the better of its two settings."""
    halves = [Candidate((setting,)) for setting in candidate.settings]
    return max([0.0, *(gains[half] for half in halves if half != candidate)])


def _connections(unchanged: Scenario, current: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield numbers of connections that make a difference: a worker has at most one to each peer."""
    peers = unchanged.workers - 1
    for direction in ("outgoing", "incoming"):
        name = f"{CONNECTIONS}.{direction}"
        smallest = {min(count, peers): count for count in reversed(CONNECTION_COUNTS)}
        yield name, tuple(sorted(smallest[count] for count in smallest if count != min(current[name], peers)))


def _bandwidth_estimates(unchanged: Scenario) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield initial bandwidth estimates: the rate of a worker's link, and less, if the rate is known."""
    rate = unchanged.rates_mbit.get("worker-1", 0.0) * BYTES_PER_MBIT
    if rate:
        yield BANDWIDTH, tuple(int(float(f"{rate * share:.2g}")) for share in BANDWIDTH_ESTIMATES)


def _simulated(
    directory: Path, scenarios: list[Scenario], on_outcome: Callable[[Outcome], None]
) -> list[float]:
    """Return the mean duration of a run in each scenario; new ones are cached as soon as they are known."""
    seconds = dict((store.read(SearchCache, directory) or SearchCache()).seconds)
    digests = [_digest(scenario) for scenario in scenarios]
    new = {
        digest: scenario for digest, scenario in zip(digests, scenarios, strict=True) if digest not in seconds
    }
    remaining = iter(new)

    def cache(outcome: Outcome) -> None:
        seconds[next(remaining)] = mean_run_s(outcome)
        store.write(directory, SearchCache(seconds=seconds))
        on_outcome(outcome)

    farm.simulate_all(new.values(), cache)
    return [seconds[digest] for digest in digests]


def _digest(scenario: Scenario) -> str:
    """Return the hash of everything that determines the outcome of a scenario."""
    text = f"{version('distributed')} {scenario.model_dump_json()}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _short(name: str) -> str:
    return name.removeprefix("distributed.").removeprefix("scheduler.").removeprefix("worker.")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)
