"""Check the statistics on simulated experiments: coverage, false differences, power.

    python benchmarks/statistics_simulated.py [--experiments 4000] [--seed 1]

An experiment is drawn from the variance components that were measured on containers (a quiet A/A run
of 22 trials): ``compute_s`` varies by 5.9 % within a trial and by 6.7 % between trials, ``transfer_mb`` by
11.5 % and not at all; a third, rougher lab has 10 % between trials. Blocks drift by 10 %. Each design in use
is drawn thousands of times, with two independent metrics as most presets have, and judged by
``dasklab.results.statistics.inference`` as `dasklab` does. Printed are

    coverage    of the 95 % intervals of single comparisons: 93 to 97 % is what they promise
    false       experiments in which any metric of any level is called different, though none is: at most 5 %
    power       how often one level that truly takes x 1.3 is shown: at least 80 %

The last lines are `--until` (blocks are added until intervals are within 10 %), two runs compared that
share no block, and cells whose noise differs, which the model only partly allows for. It exits with 1 if a
promise is broken for the measured components.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from dasklab.results.statistics.answers import error_rates
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit
from dasklab.running.more_blocks import MIN_BLOCKS

DRIFT = 0.1
EFFECT = math.log(1.3)
MAIN, SIDE = "compute_s", "transfer_mb"
RATES = error_rates([MAIN, SIDE])


@dataclass(frozen=True)
class Noise:
    """Deviations of the logarithm: of runs within a trial, of trials; ``cell`` scales one level's."""

    name: str
    within: float
    between: float
    cell: float = 1.0


@dataclass(frozen=True)
class Design:
    """So many cells, the baseline among them, in so many blocks of so many runs."""

    name: str
    cells: int
    blocks: int
    runs: int


@dataclass
class Tally:
    """What came of all experiments of one design."""

    covered: int = 0
    compared: int = 0
    false: int = 0
    shown: int = 0
    experiments: int = 0
    blocks: int = 0

    def line(self) -> str:
        """Coverage, and false differences or power, in per cent."""
        return f"{100 * self.covered / self.compared:8.1f} {100 * self.false / self.experiments:8.1f}"


COMPUTE, TRANSFER = Noise("compute_s", 0.059, 0.067), Noise("transfer_mb", 0.115, 0.0)
ROUGH = Noise("10 % between trials", 0.059, 0.10)
DESIGNS = (
    Design("one level", 2, 3, 2),
    Design("one level, full", 2, 4, 3),
    Design("delay, quick", 4, 3, 2),
    Design("delay, full", 7, 4, 3),
    Design("rate x bridge, quick", 6, 3, 2),
    Design("rate x bridge, full", 6, 4, 3),
    Design("versions, quick", 9, 3, 2),
    Design("versions, full", 9, 4, 3),
    Design("faults, quick", 4, 3, 2),
)


def trials(
    dice: np.random.Generator, design: Design, noise: Noise, effect: float
) -> tuple[list[int], list[int], list[float]]:
    """One experiment: cell, block and value (the logarithm of the median) of each trial, null trials too."""
    cells, blocks, values = [], [], []
    for block in range(design.blocks):
        drift = dice.normal(0, DRIFT)
        for cell in [*range(design.cells), 0]:
            wide = noise.cell if cell == 1 else 1.0
            usual = drift + effect * (cell == 1) + dice.normal(0, noise.between * wide)
            runs = usual + dice.normal(0, noise.within * wide, design.runs)
            cells.append(cell)
            blocks.append(block)
            values.append(math.log(np.median(np.exp(runs))))
    return cells, blocks, values


def judged(fit: Fit, cells: int, rate: float) -> Iterator[tuple[int, Estimate, bool]]:
    """Of each level: its estimate, and whether its difference from the baseline is shown."""
    pairs = [(cell, 0) for cell in range(1, cells)]
    for (cell, _), threshold in zip(pairs, fit.thresholds(pairs, rate), strict=True):
        estimate = fit.difference(cell, 0)
        yield cell, estimate, abs(estimate.value) > threshold


def simulate(dice: np.random.Generator, design: Design, noise: Noise, effect: float, count: int) -> Tally:
    """Draw and judge experiments whose level 1 truly differs by ``effect``."""
    tally = Tally()
    for _ in range(count):
        tally.experiments += 1
        wrong = False
        cells, blocks, values = trials(dice, design, noise, effect)
        for cell, estimate, shown in judged(Fit(cells, blocks, np.array(values)), design.cells, RATES[MAIN]):
            truth = effect * (cell == 1)
            tally.covered += abs(estimate.value - truth) <= estimate.margin
            tally.compared += 1
            wrong |= shown and not truth
            tally.shown += shown and cell == 1
        if not effect:
            cells, blocks, values = trials(dice, design, TRANSFER, 0.0)
            side = judged(Fit(cells, blocks, np.array(values)), design.cells, RATES[SIDE])
            wrong |= any(shown for _, _, shown in side)
        tally.false += wrong
    return tally


def until(
    dice: np.random.Generator, design: Design, noise: Noise, share: float, most: int, count: int
) -> Tally:
    """`--until`: stop when intervals are narrow enough twice in a row."""
    tally = Tally()
    for _ in range(count):
        cells, blocks, values = trials(dice, Design("", design.cells, most, design.runs), noise, 0.0)
        each, narrow, number = design.cells + 1, False, MIN_BLOCKS - 1
        while True:
            fit = Fit(cells[: number * each], blocks[: number * each], np.array(values[: number * each]))
            before, narrow = (
                narrow,
                all(
                    math.expm1(estimate.margin) <= share
                    for _, estimate, _ in judged(fit, design.cells, RATES[MAIN])
                ),
            )
            if number >= MIN_BLOCKS and (number == most or (narrow and before)):
                break
            number += 1
        verdicts = list(judged(fit, design.cells, RATES[MAIN]))
        tally.covered += sum(abs(estimate.value) <= estimate.margin for _, estimate, _ in verdicts)
        tally.compared += len(verdicts)
        tally.false += any(shown for _, _, shown in verdicts)
        tally.experiments += 1
        tally.blocks += number
    return tally


def two_runs(dice: np.random.Generator, design: Design, noise: Noise, count: int) -> Tally:
    """`results compare`: the same cells of two runs, which share no block."""
    tally = Tally()
    for _ in range(count):
        cells, blocks, values = [], [], []
        for side in ("old", "new"):
            mine, of, found = trials(dice, design, noise, 0.0)
            cells += [(side, cell) for cell in mine]
            blocks += [(side, block) for block in of]
            values += found
        fit = Fit(cells, blocks, np.array(values))
        estimates = [fit.difference(("new", cell), ("old", cell)) for cell in range(design.cells)]
        tally.covered += sum(abs(estimate.value) <= estimate.margin for estimate in estimates)
        tally.compared += design.cells
        tally.false += min(estimate.p_value for estimate in estimates) * design.cells < ALPHA
        tally.experiments += 1
    return tally


def main() -> int:
    """Print the table; 1 if a promise is broken for the measured components."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--experiments", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    dice, broken = np.random.default_rng(asked.seed), 0
    print(f"{asked.experiments} experiments a line; per cent\n")
    place = f"{'design':22} {'cells':>5} {'blocks':>6} {'runs':>4}"
    print(f"{place}  {'noise':20} {'coverage':>8} {'false':>8} {'power':>8}")
    for design in DESIGNS:
        for noise in (COMPUTE, TRANSFER, ROUGH):
            null = simulate(dice, design, noise, 0.0, asked.experiments)
            real = simulate(dice, design, noise, EFFECT, asked.experiments // 2)
            power = 100 * real.shown / real.experiments
            place = f"{design.name:22} {design.cells:5} {design.blocks:6} {design.runs:4}"
            print(f"{place}  {noise.name:20} {null.line()} {power:8.1f}", flush=True)
            held = 93 <= 100 * null.covered / null.compared <= 97 and null.false <= 0.05 * null.experiments
            broken += noise is not ROUGH and not (held and power >= 80)
    print("\n--until 10 %, at most 12 blocks" + " " * 35 + "coverage    false   blocks")
    for cells in (2, 4, 9):
        for noise in (COMPUTE, TRANSFER):
            found = until(dice, Design("", cells, 0, 3), noise, 0.1, 12, asked.experiments // 4)
            blocks = found.blocks / found.experiments
            print(f"  {cells} cells, 3 runs{'':33}  {noise.name:12} {found.line()} {blocks:8.1f}", flush=True)
    print("\ntwo runs compared, no block shared")
    for cells in (2, 6):
        found = two_runs(dice, Design("", cells, 4, 3), COMPUTE, asked.experiments // 4)
        print(f"  {cells} cells, 4 blocks, 3 runs{'':37} {found.line()}")
    print("\none level's noise is several times the others'")
    for times in (2.0, 4.0):
        found = simulate(
            dice, Design("", 7, 4, 3), Noise("", 0.059, 0.067, times), 0.0, asked.experiments // 4
        )
        print(f"  x {times:g}, 7 cells, 4 blocks, 3 runs{'':31} {found.line()}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
