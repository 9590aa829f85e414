"""Sensitivity: how much the time of a trial or a record changes when one resource changes and all else stays.

Each resource is halved and doubled in simulations. The sensitivity is the slope of the logarithms between
them: 0.3 for the rate means that 1 % more rate takes 0.3 % less time. Each seed's slope is a sample;
intervals are Student's over seeds, widened by the prediction error, because two simulated times may be off by
that much relative to each other. Where a run has trials that differ in one resource alone, the measured
sensitivity is computed as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from scipy.special import stdtrit  # Student's quantile; scipy.stats takes a second to import
from typing_extensions import Self

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Outcome
from dasklab.predict.calibration import Calibration, pair_with_seeds
from dasklab.predict.engine import processes
from dasklab.predict.record_simulations import RecordSimulations
from dasklab.predict.sources import settings
from dasklab.predict.validation import Validated
from dasklab.predict.whatif import PAYLOAD, scenario
from dasklab.results.run import Run
from dasklab.results.statistics.inference import CONFIDENCE, Fit
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import level
from dasklab.sim.scenario import Scenario

Changes = dict[str, Any]  # settings, as `dasklab whatif` has them
TrialTime = tuple[int, float]  # a trial's block, and the median of its repeats in seconds
MeasuredTimes = dict[str, dict[float, list[TrialTime]]]  # resource -> its amount -> trials
RATE_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
NEGLIGIBLE = 0.05  # faster links that save less than this share of the time do not help
MAX_REPEATS_PER_SEED = 3  # more seeds are worth more than more repeats
LOSS_PCT = 0.1
RATE, WORKERS = "rate of all links", "workers"  # resources of which a run may have measured several amounts
UNITS = {RATE: " Mbit/s", WORKERS: ""}


@dataclass(frozen=True)
class VariedWork:
    """What is simulated with changes.

    Attributes:
        workers: how many there were.
        starved: seconds that a worker waited for a core, per second that it had one.
        scenarios: returns the scenarios of a change, one for each seed.
        prediction_error: two simulated times may be off by this share relative to each other.
    """

    workers: int
    starved: float
    scenarios: Callable[[Changes], list[Scenario]]
    prediction_error: float

    @classmethod
    def of_trial(
        cls, trial: RequestedTrial, calibrations: Sequence[Calibration], seeds: Sequence[int]
    ) -> Self:
        """Return what is simulated of a measured trial.

        Args:
            calibrations: of this trial or of equal ones; the seeds are dealt to them.
        """
        few_repeats = {"repeats": min(trial.repeats, MAX_REPEATS_PER_SEED)}

        def scenarios(change: Changes) -> list[Scenario]:
            return [
                scenario(trial, calibration, few_repeats | change, seed=seed)
                for calibration, seed in pair_with_seeds(calibrations, seeds)
            ]

        starved = calibrations[0].starved  # those of equal trials differ little
        return cls(trial.workers, starved, scenarios, Validated.read().prediction_error)

    @classmethod
    def of_record(cls, simulations: RecordSimulations) -> Self:
        calibration = simulations.calibration
        return cls(
            calibration.workers, calibration.starved, simulations.scenarios, simulations.prediction_error
        )


@dataclass(frozen=True)
class VariedResource:
    """A resource that the time may be sensitive to.

    Attributes:
        now: its amount, as text.
        more: changes that double it.
        less: changes that halve it. None: it is there or not, and ``more`` is the whole change.
        ratio: amount with ``more`` / amount with ``less``.
    """

    name: str
    now: str
    more: Changes
    less: Changes | None = None
    ratio: float = 4


@dataclass(frozen=True)
class Effect:
    """The effect of a resource: % less time for 1 % more of it (``relative``) or for the whole change."""

    name: str
    now: str
    relative: bool
    gain_pct: Interval
    simulated: bool = True


@dataclass(frozen=True)
class Sensitivities:
    """What the time of a trial or a record is sensitive to.

    Attributes:
        seconds: simulated duration of a repeat without a change.
        effects: one per resource, then the measured ones.
        rates: simulated duration of a repeat by the rate of all links (Mbit/s); none if it is unknown.
        now_mbit: the rate of all links; 0 if it is unknown.
        measured: measured duration of a repeat by the rate of all links.
    """

    seconds: Interval
    effects: tuple[Effect, ...]
    rates: dict[float, Interval]
    now_mbit: float
    measured: dict[float, Interval]

    @property
    def knee_mbit(self) -> float | None:
        """The lowest rate above which no faster one helps; None if the fastest does or rates are unknown."""
        if not self.rates:
            return None
        fastest = max(self.rates)
        good_enough = self.rates[fastest].value * (1 + NEGLIGIBLE)
        slow = [rate for rate, seconds in self.rates.items() if seconds.value > good_enough]
        knee = min(rate for rate in self.rates if rate > max(slow, default=0))
        return None if knee == fastest else knee


def resources(work: VariedWork) -> Iterator[VariedResource]:
    """Yield what the time may be sensitive to."""
    unchanged = work.scenarios({})[0]
    rate = f"{unchanged.rates_mbit['worker-1'] / PAYLOAD:,.0f} Mbit/s"
    rtt = f"{unchanged.rtt_ms:.2g} ms, and delays"
    if unchanged.rates_mbit["worker-1"]:
        yield VariedResource(RATE, rate, {"rate_times": 2.0}, {"rate_times": 0.5})
    yield VariedResource("round trip", rtt, {"rtt_times": 2.0}, {"rtt_times": 0.5})
    yield VariedResource("scheduler's CPU", "as measured", {"scheduler_speed": 2.0}, {"scheduler_speed": 0.5})
    yield VariedResource("workers' CPU", "as measured", {"worker_speed": 2.0}, {"worker_speed": 0.5})
    more, fewer = 2 * work.workers, max(1, work.workers // 2)
    yield VariedResource(WORKERS, str(work.workers), {"workers": more}, {"workers": fewer}, more / fewer)
    losses = {
        host: unchanged.links[host].loss_pct if host in unchanged.links else 0.0
        for host in unchanged.rates_mbit
        if host != "client"
    }
    lossy = {host: {"loss_pct": loss + LOSS_PCT} for host, loss in losses.items()}
    yield VariedResource(f"{LOSS_PCT:g} % more loss on all links", "", {"links": lossy})
    if work.starved:
        waiting = f"{work.starved:.2g} s per s of CPU"
        yield VariedResource("no waiting for a core", waiting, {"starved": 0.0})


def changes(work: VariedWork) -> list[Changes]:
    """Return all changes to simulate with each seed. The first one changes nothing."""
    result: list[Changes] = [{}]
    if work.scenarios({})[0].rates_mbit["worker-1"]:
        result += [{"rate_times": factor} for factor in RATE_FACTORS if factor != 1]
    for resource in resources(work):
        result += [change for change in (resource.more, resource.less) if change and change not in result]
    return result


def analyze(
    work: VariedWork,
    measured: MeasuredTimes,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Sensitivities:
    """Simulate all changes and compute the sensitivities.

    Args:
        measured: times of trials that differ in one resource, as `measured_times` returns them.
        on_outcome: called with each outcome.

    Raises:
        LabError: the work cannot be simulated.
    """
    all_changes = changes(work)
    scenarios = [work.scenarios(change) for change in all_changes]
    outcomes = processes.simulate_all([scenario for own in scenarios for scenario in own], on_outcome)
    seconds = np.array([mean_run_s(outcome) for outcome in outcomes]).reshape(len(all_changes), -1)
    by_change = list(zip(all_changes, seconds.tolist(), strict=True))

    def seconds_with(change: Changes) -> list[float]:
        return next(values for other, values in by_change if other == change)

    now_mbit = scenarios[0][0].rates_mbit["worker-1"] / PAYLOAD
    error = work.prediction_error

    def at_rate(factor: float) -> Interval:
        return student(seconds_with({"rate_times": factor} if factor != 1 else {})).widened(error)

    simulated = (_simulated(resource, seconds_with, error) for resource in resources(work))
    return Sensitivities(
        seconds=student(seconds_with({})).widened(error),
        effects=(*simulated, *_measured(measured)),
        rates={now_mbit * factor: at_rate(factor) for factor in RATE_FACTORS} if now_mbit else {},
        now_mbit=now_mbit,
        measured={
            rate: student([repeat_s for _, repeat_s in trials])
            for rate, trials in measured.get(RATE, {}).items()
        },
    )


def student(values: Sequence[float]) -> Interval:
    """Return the mean and Student's interval of it; a single value has no interval."""
    middle = fmean(values)
    if len(values) < 2:
        return Interval(middle)
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    margin = quantile * stdev(values) / math.sqrt(len(values))
    return Interval(middle, middle - margin, middle + margin)


def mean_run_s(outcome: Outcome) -> float:
    """Return the mean duration of a simulation's timed repeats."""
    return fmean(repeat.duration_s for repeat in outcome.repeats if not repeat.warmup)


def measured_times(run: Run, trial: RequestedTrial) -> MeasuredTimes:
    """Return the times of a run's valid trials that differ from ``trial`` in one resource alone.

    The rate counts where all links of the cluster have the same rate cap; links without a cap have no rate.
    """
    times: MeasuredTimes = {RATE: {}, WORKERS: {}}
    if not run.is_experiment:
        return times
    own = settings(trial)
    for stored in run.trials:
        other = stored.requested
        different = {name for name, value in settings(other).items() if value != own[name]}
        if not stored.is_valid or not stored.durations_s:
            continue
        trial_time = (other.block, median(stored.durations_s))
        caps = {card.rate_mbit for host, card in other.nics.items() if host != "client"}
        if different <= {"nics"} and len(caps) == 1 and min(caps):
            times[RATE].setdefault(min(caps), []).append(trial_time)
        if different <= {"workers"}:
            times[WORKERS].setdefault(other.workers, []).append(trial_time)
    return {name: dict(sorted(by_amount.items())) for name, by_amount in times.items()}


def _simulated(
    resource: VariedResource, seconds_with: Callable[[Changes], list[float]], error: float
) -> Effect:
    """Compute the effect of a resource from each seed's pair of simulations."""
    if resource.less is None:
        pairs = zip(seconds_with({}), seconds_with(resource.more), strict=True)
        share = student([after / before for before, after in pairs]).widened(error)
        gain = Interval(*(100 * (1 - value) for value in (share.value, share.high, share.low)))
        return Effect(resource.name, resource.now, False, gain)
    pairs = zip(seconds_with(resource.less), seconds_with(resource.more), strict=True)
    log_ratio = math.log(resource.ratio)
    slope = student([math.log(less / more) / log_ratio for less, more in pairs])
    margin = math.log1p(error) / log_ratio
    gain = Interval(slope.value, slope.low - margin, slope.high + margin)
    return Effect(resource.name, resource.now, True, gain)


def _measured(times: MeasuredTimes) -> Iterator[Effect]:
    """Compute the effect between each two neighbouring amounts that were measured."""
    for name, by_amount in times.items():
        rows = [(amount, *trial_time) for amount, trials in by_amount.items() for trial_time in trials]
        amounts, blocks, seconds = zip(*rows, strict=True) if rows else ((), (), ())
        for less, more in itertools.pairwise(by_amount):
            fit = Fit(amounts, blocks, np.log(seconds))
            factor = level(fit.difference(less, more), 0.0, log=True)
            log_ratio = math.log(more / less)
            ends = (math.log(value) / log_ratio for value in (factor.value, factor.low, factor.high))
            yield Effect(name, f"{less:g} to {more:g}{UNITS[name]}", True, Interval(*ends), simulated=False)
