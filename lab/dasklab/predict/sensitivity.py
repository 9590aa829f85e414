"""The card: what a trial's time hangs on, simulated. Each thing is halved and doubled, all else left alone.

Sensitivities are slopes of logarithms between half and double: 0.3 of the rate means that 1 % more of it
takes 0.3 % less time. Intervals are Student's over seeds, each seed's slope being a sample, wider by what
simulations were missed by where they were compared: two simulated times may be off by so much, one to the
other. Below stands what was measured, where a run has several rates or numbers of workers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from scipy.special import stdtrit  # Student's; scipy.stats takes a second to import

from dasklab.model.files import Campaign, Outcome, Result, Timings
from dasklab.model.trial import Trial
from dasklab.predict import farm
from dasklab.predict.calibration import Calibration, dealt
from dasklab.predict.sources import settings
from dasklab.predict.validation import Validated
from dasklab.predict.whatif import PAYLOAD, scenario
from dasklab.results.statistics.inference import CONFIDENCE, Fit
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import level
from dasklab.results.storage import store

Changes = dict[str, Any]  # settings, as `dasklab whatif` has them
Timed = tuple[int, float]  # a trial: its block, the median of its runs in seconds
Measured = dict[str, dict[float, list[Timed]]]  # thing -> its amount -> trials
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
LITTLE = 0.05  # faster links that take less of the time off than this bring nothing
MOST_RUNS = 3  # of a seed: more seeds tell more than more runs
LOSS_PCT = 0.1
RATE, WORKERS = "rate of all links", "workers"  # what a run may have measured several amounts of
UNITS = {RATE: " Mbit/s", WORKERS: ""}


@dataclass(frozen=True)
class Thing:
    """What the time may hang on: its amount, what doubles and halves it, and how far that is apart.

    Without ``half`` it is there or not, and what is told is the whole of the change.
    """

    name: str
    now: str
    double: Changes
    half: Changes | None = None
    apart: float = 4


@dataclass(frozen=True)
class Line:
    """What is told of a thing: how many per cent less time 1 % more of it takes, or the whole change."""

    name: str
    now: str
    relative: bool
    gain_pct: Interval
    simulated: bool = True


@dataclass(frozen=True)
class Card:
    """``rates``: Mbit/s of all links, and a run's seconds with it; ``measured`` the same on the lab."""

    seconds: Interval
    lines: tuple[Line, ...]
    rates: dict[float, Interval]
    now_mbit: float
    measured: dict[float, Interval]

    @property
    def knee_mbit(self) -> float | None:
        """The lowest rate from which on no faster one brings anything; None if the fastest still does."""
        most = max(self.rates)
        enough = self.rates[most].value * (1 + LITTLE)
        slow = [rate for rate, found in self.rates.items() if found.value > enough]
        knee = min(rate for rate in self.rates if rate > max(slow, default=0))
        return knee if knee < most else None


def things(trial: Trial, calibrations: Sequence[Calibration]) -> Iterator[Thing]:
    """What a trial's time may hang on; what differs between the calibrations is told of the first."""
    calibration = calibrations[0]
    asked = scenario(trial, calibration, seed=0)
    rate = f"{asked.rates_mbit['worker-1'] / PAYLOAD:,.0f} Mbit/s"
    yield Thing(RATE, rate, {"rate_times": 2.0}, {"rate_times": 0.5})
    yield Thing("round trip", f"{asked.rtt_ms:.2g} ms, and delays", {"rtt_times": 2.0}, {"rtt_times": 0.5})
    yield Thing("scheduler's CPU", "as it was", {"scheduler_speed": 2.0}, {"scheduler_speed": 0.5})
    yield Thing("workers' CPU", "as it was", {"worker_speed": 2.0}, {"worker_speed": 0.5})
    more, fewer = 2 * trial.workers, max(1, trial.workers // 2)
    yield Thing(WORKERS, str(trial.workers), {"workers": more}, {"workers": fewer}, more / fewer)
    lossy = {host: asked.links[host].loss_pct if host in asked.links else 0.0 for host in asked.rates_mbit}
    worse = {host: {"loss_pct": loss + LOSS_PCT} for host, loss in lossy.items() if host != "client"}
    yield Thing(f"{LOSS_PCT:g} % more loss on all links", "", {"links": worse})
    if calibration.starved:
        now = f"{calibration.starved:.2g} s waited for each on one"
        yield Thing("a core whenever one is wanted", now, {"starved": 0.0})


def changes(trial: Trial, calibrations: Sequence[Calibration]) -> list[Changes]:
    """All that is simulated, with each seed; the first changes nothing."""
    asked: list[Changes] = [{}, *({"rate_times": times} for times in RATES if times != 1)]
    for thing in things(trial, calibrations):
        asked += [change for change in (thing.double, thing.half) if change and change not in asked]
    return asked


def card(
    trial: Trial,
    calibrations: Sequence[Calibration],
    seeds: Sequence[int],
    measured: Measured,
    told: Callable[[Outcome], None] = lambda _: None,
) -> Card:
    """Simulate all that the card tells; ``measured`` are the run's trials, by what they differ in.

    Raises:
        LabError: the trial cannot be simulated.
    """
    every = changes(trial, calibrations)
    few = {"runs": min(trial.runs, MOST_RUNS)}
    asked = [
        scenario(trial, mine, few | change, seed=seed)
        for change in every
        for mine, seed in dealt(calibrations, seeds)
    ]
    took = np.array([run_s(outcome) for outcome in farm.simulate_all(asked, told)])
    by_change = list(zip(every, took.reshape(len(every), len(seeds)).tolist(), strict=True))

    def of(change: Changes) -> list[float]:
        return next(seconds for known, seconds in by_change if known == change)

    now = asked[0].rates_mbit["worker-1"] / PAYLOAD
    missed = Validated.read().missed

    def at(times: float) -> Interval:
        return spread(of({"rate_times": times} if times != 1 else {})).widened(missed)

    return Card(
        seconds=spread(of({})).widened(missed),
        lines=(*(_line(thing, of, missed) for thing in things(trial, calibrations)), *_measured(measured)),
        rates={now * times: at(times) for times in RATES},
        now_mbit=now,
        measured={
            rate: spread([seconds for _, seconds in trials])
            for rate, trials in measured.get(RATE, {}).items()
        },
    )


def spread(values: Sequence[float]) -> Interval:
    """The mean and Student's interval of it; without ends where there is one value."""
    middle = fmean(values)
    if len(values) < 2:
        return Interval(middle)
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    reach = quantile * stdev(values) / math.sqrt(len(values))
    return Interval(middle, middle - reach, middle + reach)


def measured(run: Path, trial: Trial) -> Measured:
    """Of a run's valid trials that are as ``trial`` but for one thing: their seconds by its amount.

    Rates are caps of all the cluster's links; links without one have no rate that could be compared.
    """
    found: Measured = {RATE: {}, WORKERS: {}}
    if not (run / Campaign.FILE).exists():
        return found
    mine = settings(trial)
    for directory in store.finished(run):
        other = store.need(Trial, directory)
        differs = {name for name, value in settings(other).items() if value != mine[name]}
        if store.need(Result, directory).status != "ok":
            continue
        runs = [sample.duration_s for sample in store.need(Timings, directory).timed]
        if not runs:
            continue
        timed = (other.block, median(runs))
        caps = {card.rate_mbit for host, card in other.nics.items() if host != "client"}
        if differs <= {"nics"} and len(caps) == 1 and min(caps):
            found[RATE].setdefault(min(caps), []).append(timed)
        if differs <= {"workers"}:
            found[WORKERS].setdefault(other.workers, []).append(timed)
    return {name: dict(sorted(by_amount.items())) for name, by_amount in found.items()}


def _measured(found: Measured) -> Iterator[Line]:
    """The sensitivity between each two neighbours of those amounts that were measured."""
    for name, by_amount in found.items():
        trials = [(amount, *timed) for amount, timeds in by_amount.items() for timed in timeds]
        amounts, blocks, seconds = zip(*trials, strict=True) if trials else ((), (), ())
        for less, more in itertools.pairwise(by_amount):
            fit = Fit(amounts, blocks, np.log(seconds))
            times = level(fit.difference(less, more), 0.0, log=True)
            apart = math.log(more / less)
            gain = Interval(*(math.log(value) / apart for value in (times.value, times.low, times.high)))
            yield Line(name, f"{less:g} to {more:g}{UNITS[name]}", True, gain, simulated=False)


def run_s(outcome: Outcome) -> float:
    """Mean of the timed runs of a simulation."""
    return fmean(run.duration_s for run in outcome.runs if not run.warmup)


def _line(thing: Thing, of: Callable[[Changes], list[float]], missed: float) -> Line:
    if thing.half is None:
        pairs = zip(of({}), of(thing.double), strict=True)
        left = spread([after / now for now, after in pairs]).widened(missed)
        gain = Interval(*(100 * (1 - share) for share in (left.value, left.high, left.low)))
        return Line(thing.name, thing.now, False, gain)
    pairs = zip(of(thing.half), of(thing.double), strict=True)
    apart = math.log(thing.apart)
    slope = spread([math.log(half / double) / apart for half, double in pairs])
    off = math.log1p(missed) / apart
    return Line(thing.name, thing.now, True, Interval(slope.value, slope.low - off, slope.high + off))
