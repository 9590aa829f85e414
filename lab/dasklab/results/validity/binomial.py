"""Compare a count with the share that was requested: is it what chance makes of the share?"""

from __future__ import annotations


def is_unlikely(hits: int, tries: int, share: float, confidence: float) -> bool:
    """Whether chance makes such a number of hits in less than ``1 - confidence`` of all cases."""
    if not share:
        return hits > 0
    from scipy.stats import binomtest  # scipy.stats takes a second to import, and few trials need it

    return bool(binomtest(hits, tries, share).pvalue < 1 - confidence)


def excludes(hits: int, tries: int, share: float, confidence: float) -> bool:
    """Whether the binomial interval of a number of hits excludes the share."""
    from scipy.stats import binomtest

    interval = binomtest(hits, tries).proportion_ci(confidence)
    return not interval.low <= share <= interval.high


def exceeds(hits: int, tries: int, share: float, confidence: float) -> bool:
    """Whether chance makes so many hits, or more, in less than ``1 - confidence`` of all cases."""
    if hits <= share * tries:
        return False
    from scipy.stats import binomtest

    return bool(binomtest(hits, tries, share, alternative="greater").pvalue < 1 - confidence)
