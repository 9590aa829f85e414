"""Check the statistics on simulated experiments: coverage, false differences, power.

    python benchmarks/statistics_simulated.py [--experiments 800] [--seed 1]

Experiments are drawn from variance components that were measured on containers (a quiet A/A run of 22
trials): ``compute_s`` varies by 5.9 % within a trial and by 6.7 % between trials, ``transfer_mb`` by 11.5 %
and not at all; a third, noisier lab has 10 % between trials. Blocks drift by 10 %. Each design in use is
drawn thousands of times, with two independent metrics, and judged by
``dasklab.results.statistics.inference`` as `dasklab` does. The columns are

    coverage    of the 95 % intervals of single comparisons: 93 to 97 % are promised false       experiments
    that show a difference of any metric at any level, though there is none: at most 5 % power       how
    often one level that takes x 1.3 is shown: at least 80 %

The last lines are `--until` (blocks are added until intervals are within 10 %), comparisons of two runs,
which share no block, and cells with different noise, for which the model allows only in part. The exit
status is 1 if a promise is broken for the measured components.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--experiments": (4000, "how many of each design"),
            "--seed": (1, "determines the experiments"),
        },
        smallest="--experiments 40",
    )

import numpy as np
from dasklab.results.statistics.answers import error_rates
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit
from dasklab.running.driver.more_blocks import MIN_BLOCKS

FEWEST_JUDGED = 1000  # experiments: of fewer, the shares vary by more than the promises leave
DRIFT = 0.1
EFFECT = math.log(1.3)
MAIN, SIDE = "compute_s", "transfer_mb"
RATES = error_rates([MAIN, SIDE])


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithm in and between trials; ``cell`` multiplies those of level 1."""

    name: str
    within: float
    between: float
    cell: float = 1.0


@dataclass(frozen=True)
class Design:
    """The number of cells (with the baseline), of blocks, and of repeats in a trial."""

    name: str
    cells: int
    blocks: int
    repeats: int


@dataclass
class Tally:
    """Counts over all experiments of one design."""

    covered: int = 0
    compared: int = 0
    false: int = 0
    power: int = 0
    experiments: int = 0
    blocks: int = 0

    def line(self) -> str:
        """Return the coverage and the rate of false differences, in per cent."""
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
    random: np.random.Generator, design: Design, noise: Noise, effect: float
) -> tuple[list[int], list[int], list[float]]:
    """Draw an experiment: cell, block and value (the logarithm of the median) of each trial."""
    cells, blocks, values = [], [], []
    for block in range(design.blocks):
        drift = random.normal(0, DRIFT)
        for cell in [*range(design.cells), 0]:
            factor = noise.cell if cell == 1 else 1.0
            mean = drift + effect * (cell == 1) + random.normal(0, noise.between * factor)
            values_of_repeats = mean + random.normal(0, noise.within * factor, design.repeats)
            cells.append(cell)
            blocks.append(block)
            values.append(math.log(np.median(np.exp(values_of_repeats))))
    return cells, blocks, values


def judge(fit: Fit, cells: int, rate: float) -> Iterator[tuple[int, Estimate, bool]]:
    """Yield each level with its estimate, and whether its difference from the baseline is shown."""
    pairs = [(cell, 0) for cell in range(1, cells)]
    for (cell, _), threshold in zip(pairs, fit.thresholds(pairs, rate), strict=True):
        estimate = fit.difference(cell, 0)
        yield cell, estimate, abs(estimate.value) > threshold


def simulate(random: np.random.Generator, design: Design, noise: Noise, effect: float, count: int) -> Tally:
    """Draw and judge experiments whose level 1 differs by ``effect``."""
    tally = Tally()
    for _ in range(count):
        tally.experiments += 1
        false = False
        cells, blocks, values = trials(random, design, noise, effect)
        fit = Fit(cells, blocks, np.array(values))
        for cell, estimate, is_shown in judge(fit, design.cells, RATES[MAIN]):
            truth = effect * (cell == 1)
            tally.covered += abs(estimate.value - truth) <= estimate.margin
            tally.compared += 1
            false |= is_shown and not truth
            tally.power += is_shown and cell == 1
        if not effect:
            cells, blocks, values = trials(random, design, TRANSFER, 0.0)
            side = judge(Fit(cells, blocks, np.array(values)), design.cells, RATES[SIDE])
            false |= any(is_shown for _, _, is_shown in side)
        tally.false += false
    return tally


def until(
    random: np.random.Generator, design: Design, noise: Noise, share: float, most: int, count: int
) -> Tally:
    """Add blocks as `--until` does, until intervals are narrow enough twice in a row."""
    tally = Tally()
    for _ in range(count):
        cells, blocks, values = trials(random, Design("", design.cells, most, design.repeats), noise, 0.0)
        narrow, number = False, MIN_BLOCKS - 1
        while True:
            end = number * (design.cells + 1)
            fit = Fit(cells[:end], blocks[:end], np.array(values[:end]))
            verdicts = list(judge(fit, design.cells, RATES[MAIN]))
            was_narrow = narrow
            narrow = all(math.expm1(estimate.margin) <= share for _, estimate, _ in verdicts)
            if number >= MIN_BLOCKS and (number == most or (narrow and was_narrow)):
                break
            number += 1
        tally.covered += sum(abs(estimate.value) <= estimate.margin for _, estimate, _ in verdicts)
        tally.compared += len(verdicts)
        tally.false += any(is_shown for _, _, is_shown in verdicts)
        tally.experiments += 1
        tally.blocks += number
    return tally


def two_runs(random: np.random.Generator, design: Design, noise: Noise, count: int) -> Tally:
    """Compare the same cells of two runs, which share no block, as `results compare` does."""
    tally = Tally()
    for _ in range(count):
        cells, blocks, values = [], [], []
        for side in ("old", "new"):
            own_cells, own_blocks, own_values = trials(random, design, noise, 0.0)
            cells += [(side, cell) for cell in own_cells]
            blocks += [(side, block) for block in own_blocks]
            values += own_values
        fit = Fit(cells, blocks, np.array(values))
        estimates = [fit.difference(("new", cell), ("old", cell)) for cell in range(design.cells)]
        tally.covered += sum(abs(estimate.value) <= estimate.margin for estimate in estimates)
        tally.compared += design.cells
        tally.false += min(estimate.p_value for estimate in estimates) * design.cells < ALPHA
        tally.experiments += 1
    return tally


def main(options: Namespace) -> int:
    """Print the table; return 1 if a promise is broken for the measured components."""
    random, broken = np.random.default_rng(options.seed), 0
    print(f"{options.experiments} experiments per line; per cent\n")
    place = f"{'design':22} {'cells':>5} {'blocks':>6} {'repeats':>7}"
    print(f"{place}  {'noise':20} {'coverage':>8} {'false':>8} {'power':>8}")
    for design in DESIGNS:
        for noise in (COMPUTE, TRANSFER, ROUGH):
            null = simulate(random, design, noise, 0.0, options.experiments)
            real = simulate(random, design, noise, EFFECT, options.experiments // 2)
            power = 100 * real.power / real.experiments
            place = f"{design.name:22} {design.cells:5} {design.blocks:6} {design.repeats:4}"
            print(f"{place}  {noise.name:20} {null.line()} {power:8.1f}", flush=True)
            covers = 93 <= 100 * null.covered / null.compared <= 97
            keeps_promise = covers and null.false <= 0.05 * null.experiments and power >= 80
            broken += noise is not ROUGH and not keeps_promise
    print("\n--until 10 %, at most 12 blocks" + " " * 35 + "coverage    false   blocks")
    for cells in (2, 4, 9):
        for noise in (COMPUTE, TRANSFER):
            tally = until(random, Design("", cells, 0, 3), noise, 0.1, 12, options.experiments // 4)
            blocks = tally.blocks / tally.experiments
            print(
                f"  {cells} cells, 3 repeats{'':33}  {noise.name:12} {tally.line()} {blocks:8.1f}", flush=True
            )
    print("\ntwo runs, which share no block")
    for cells in (2, 6):
        tally = two_runs(random, Design("", cells, 4, 3), COMPUTE, options.experiments // 4)
        print(f"  {cells} cells, 4 blocks, 3 repeats{'':37} {tally.line()}")
    print("\none level has more noise than the others")
    for factor in (2.0, 4.0):
        noise = Noise("", 0.059, 0.067, factor)
        tally = simulate(random, Design("", 7, 4, 3), noise, 0.0, options.experiments // 4)
        print(f"  x {factor:g}, 7 cells, 4 blocks, 3 repeats{'':31} {tally.line()}")
    return 1 if broken and options.experiments >= FEWEST_JUDGED else 0


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
