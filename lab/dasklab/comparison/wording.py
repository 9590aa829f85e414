"""What differs between two sides in sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from dasklab.breakdown.model.causes import CAUSES
from dasklab.breakdown.show.wording import (
    LEAST_SHARE,
    MAX_SENTENCE_PARTS,
    Row,
    bottleneck,
    decimals,
    where,
    with_equals,
)
from dasklab.comparison.comparison import CauseChange, Causes
from dasklab.comparison.difference import Difference
from dasklab.model.forms.number_format import format_fixed
from dasklab.terminal import enumerated

HEAD: Row = ("cause", "before", "after", "difference", "critical path", "where")
MOST_LESS = 2  # causes in a sentence that take less time than before
ONE_RECORD = "The causes have no intervals: only one trial on a side was recorded."
NO_CAUSE = "no cause differs by more than the noise"
SINGLE = "One trial or record on a side does not show what chance does: any of this may be chance."


def main_cause(causes: Causes) -> str:
    """Name what grew most on the critical path; empty if chance explains that, or nothing grew."""
    grown = [change for change in causes.changes if change.seconds.value > 0]
    if not grown or not grown[0].is_shown:
        return ""
    certain = [change for change in grown if change.is_shown][:MAX_SENTENCE_PARTS]
    parts = [_change(change, _digits(causes.difference)) for change in certain]
    return with_equals(parts, causes.equals(certain))[0]


def sentence(causes: Causes) -> str:
    """Describe two time breakdowns: what the second has more of, the most first, then what it has less of.

    If chance may explain the difference of the times, no cause is named.
    """
    difference = causes.difference
    digits = _digits(difference)
    before, after = difference.old.makespan_s, difference.new.makespan_s
    total = f"{difference.makespan_s:+.{digits}f} s ({before:.{digits}f} to {after:.{digits}f} s)"
    if causes.is_time_shown is False:
        return f"{total}: no difference shown."
    least = LEAST_SHARE * max(abs(difference.makespan_s), before * LEAST_SHARE)
    changes = causes.shown if causes.has_intervals else causes.changes
    large = [change for change in changes if abs(change.seconds.value) > least]
    more = [change for change in large if change.seconds.value > 0][:MAX_SENTENCE_PARTS]
    less = [change for change in large if change.seconds.value < 0][: -1 - MOST_LESS : -1]
    grown = with_equals([_change(change, digits) for change in more], causes.equals(more))
    parts = ", ".join([*grown, *(_change(change, digits) for change in less)])
    if causes.is_time_shown is None or (causes.changes and not causes.has_intervals):
        path = f": on the critical path {parts}" if parts else ""
        return f"{total}{path}. {ONE_RECORD if causes.is_time_shown else SINGLE}"
    return f"{total}: on the critical path {parts}." if parts else f"{total}: {NO_CAUSE}."


def sentences(causes: Mapping[str, Causes]) -> list[str]:
    """Describe several comparisons by their titles; those without a difference share a sentence."""
    alike = [title for title, own in causes.items() if own.is_time_shown is False]
    rest = [f"{title}: {sentence(own)}" for title, own in causes.items() if title not in alike]
    return [*rest, f"No difference shown: {enumerated(alike)}."] if alike else rest


def rows(difference: Difference) -> Iterator[Row]:
    """Return two time breakdowns by cause; the last row is the sum, the difference of the makespans."""
    old, new, digits = difference.old, difference.new, _digits(difference)
    for cause in CAUSES:
        before, after = old.by_cause.get(cause, 0.0), new.by_cause.get(cause, 0.0)
        path = new.path_by_cause.get(cause, 0.0) - old.path_by_cause.get(cause, 0.0)
        if max(before, after, abs(path)) >= 0.5 * 10**-digits:
            seconds = (format_fixed(amount, digits) for amount in (before, after))
            more = (format_fixed(amount, digits, "+") for amount in (after - before, path))
            yield (cause.title, *seconds, *more, where(difference.breakdown, cause))
    sums = (f"{sum(summary.breakdown.values()):.{digits}f}" for summary in (old, new))
    total, path = sum(difference.breakdown.values()), sum(difference.path.values())
    yield "together", *sums, format_fixed(total, digits, "+"), format_fixed(path, digits, "+"), ""


def _change(change: CauseChange, digits: int) -> str:
    """Return ``+5.71 s the wire (worker-1)``, with its interval if it has one."""
    text = bottleneck((change.bottleneck, change.place, change.seconds.value), digits, "+")
    if math.isnan(change.seconds.low):
        return text
    ends = f"{change.seconds.low:+.{digits}f} to {change.seconds.high:+.{digits}f}"
    return text.replace(" s ", f" s ({ends}) ", 1)


def _digits(difference: Difference) -> int:
    return decimals(difference.old.makespan_s, difference.new.makespan_s)
