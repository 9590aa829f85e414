"""Arithmetic with intervals of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from daskwire.base.arrays import Ints

SECOND_NS = 1_000_000_000
Interval = tuple[int, int]  # start and stop, nanoseconds since 1970


def intervals(start: Ints, stop: Ints) -> list[Interval]:
    return list(zip(start.tolist(), stop.tolist(), strict=True))


def intersect(first: Interval, second: Interval) -> bool:
    """Return whether two intervals have a moment in common."""
    return first[0] <= second[1] and first[1] >= second[0]


def hull(waits: Iterable[Interval]) -> Interval:
    """Return the interval from the first start to the last stop."""
    starts, stops = zip(*waits, strict=True)
    return min(starts), max(stops)


def merged(waits: Iterable[Interval], gap_ns: int = 0) -> list[Interval]:
    """Merge intervals that overlap or are at most ``gap_ns`` apart."""
    result: list[Interval] = []
    for start, stop in sorted(waits):
        if result and start <= result[-1][1] + gap_ns:
            result[-1] = (result[-1][0], max(result[-1][1], stop))
        else:
            result.append((start, stop))
    return result


def seconds(waits: Iterable[Interval]) -> float:
    """Return the total length of intervals; overlaps count once."""
    return sum(stop - start for start, stop in merged(waits)) / SECOND_NS


def seconds_by_flow(flows: Iterable[int], waits: Iterable[Interval]) -> float:
    """Return the total length of intervals; overlaps count once per flow."""
    by_flow: defaultdict[int, list[Interval]] = defaultdict(list)
    for flow, wait in zip(flows, waits, strict=True):
        by_flow[flow].append(wait)
    return sum(map(seconds, by_flow.values()))


def overlap(interval: Interval, others: Iterable[Interval]) -> float:
    """Return which share of an interval is covered by others."""
    start, stop = interval
    inside = [(max(start, a), min(stop, b)) for a, b in others if a < stop and b > start]
    return seconds(inside) * SECOND_NS / max(stop - start, 1)
