"""How several records of one program vary: their lengths, and the bottlenecks that vary with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from dasklab.breakdown.model.causes import PLACEMENT, Bottleneck
from dasklab.breakdown.show.wording import MAX_SENTENCE_PARTS, Row, decimals
from dasklab.comparison.causes import PathSeconds
from dasklab.terminal import enumerated

ALIKE = 0.05  # of the median length: records whose lengths differ by less are equally long
LEAST_PART = 0.1  # of the variation of the lengths: what is less is left out of the sentence
LEAST_LISTED = 0.01  # of the median length, or of the variation
HEAD: Row = ("on the critical path", "lowest, s", "median, s", "highest, s", "part of the variation")
RECORD_HEAD: Row = ("record", "took, s", "most on the critical path")


@dataclass(frozen=True)
class VariedCause:
    """The seconds of a bottleneck on the critical paths of several records.

    Attributes:
        part: the part of the variance of the lengths that goes with it. The parts of all bottlenecks add up
            to 1; one that takes less where the record is longer has a negative part.
    """

    bottleneck: Bottleneck
    seconds: tuple[float, ...]
    part: float

    @property
    def title(self) -> str:
        return self.bottleneck.title


@dataclass(frozen=True)
class Variation:
    """Several records of one program, in the order in which they were named."""

    names: tuple[str, ...]
    paths: tuple[PathSeconds, ...]

    @property
    def lengths_s(self) -> list[float]:
        return [path.length_s for path in self.paths]

    @property
    def are_alike(self) -> bool:
        """Whether the records are equally long."""
        lengths_s = self.lengths_s
        return max(lengths_s) - min(lengths_s) < ALIKE * median(lengths_s)

    @cached_property
    def causes(self) -> list[VariedCause]:
        """The bottlenecks of all records, those that vary most with the lengths first."""
        # the seconds of the wire include those of placement
        bottlenecks = {bottleneck for path in self.paths for bottleneck in path.by_bottleneck} - {PLACEMENT}
        variance = _covariance(self.lengths_s, self.lengths_s)
        causes = []
        for bottleneck in bottlenecks:
            seconds = tuple(path.seconds(bottleneck) for path in self.paths)
            part = _covariance(seconds, self.lengths_s) / variance if variance else 0.0
            causes.append(VariedCause(bottleneck, seconds, part))
        return sorted(causes, key=lambda cause: (-cause.part, cause.title))


def _covariance(first: Sequence[float], second: Sequence[float]) -> float:
    middle = fmean(second)
    return sum(value * (other - middle) for value, other in zip(first, second, strict=True))


def sentence(variation: Variation) -> str:
    """Say how long the records took, and what varies with their lengths."""
    lengths_s = variation.lengths_s
    digits = decimals(*lengths_s)
    took = (
        f"{len(lengths_s)} records took {_range(lengths_s, digits)} (median {median(lengths_s):.{digits}f} s)"
    )
    if variation.are_alike:
        return f"{took}: they are equally long, so no cause varies with the length."
    parts = [
        f"{cause.title} ({_range(cause.seconds, digits)}, {_share(cause.part)} of the variation)"
        for cause in variation.causes
        if cause.part >= LEAST_PART
    ]
    return f"{took}. What varies with the length: {enumerated(parts[:MAX_SENTENCE_PARTS])}."


def rows(variation: Variation) -> Iterator[Row]:
    """Return a row per bottleneck that has a part in the path of any record."""
    digits = decimals(*variation.lengths_s)
    least_s = LEAST_LISTED * median(variation.lengths_s)
    for cause in variation.causes:
        if max(cause.seconds) > least_s:
            figures = (min(cause.seconds), median(cause.seconds), max(cause.seconds))
            part = "" if variation.are_alike else _share(cause.part)
            yield cause.title, *(f"{figure:.{digits}f}" for figure in figures), part


def record_rows(variation: Variation) -> Iterator[Row]:
    """Return a row per record, with its largest bottleneck."""
    digits = decimals(*variation.lengths_s)
    for name, path in zip(variation.names, variation.paths, strict=True):
        largest = max(path.by_bottleneck, key=path.seconds, default=None)
        most = f"{path.seconds(largest):.{digits}f} s {largest.title}" if largest else ""
        yield name, f"{path.length_s:.{digits}f}", most


def _share(part: float) -> str:
    """Write a part of the variation. Others may have negative parts, so one alone may be above 1."""
    return f"{min(100.0, 100 * part):.0f} %" if part >= LEAST_LISTED else "none"


def _range(seconds: Sequence[float], digits: int) -> str:
    return f"{min(seconds):.{digits}f} to {max(seconds):.{digits}f} s"
