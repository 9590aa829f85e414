"""Theil-Sen slopes: robust against single outliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dasklab.results.statistics.inference import CONFIDENCE
from dasklab.results.statistics.interval import Interval


def slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> Interval:
    """Return the median of the slopes of all pairs of samples."""
    from scipy.stats import theilslopes  # scipy.stats takes a second to import

    fit = theilslopes(y, x, CONFIDENCE)
    return Interval(float(fit.slope), float(fit.low_slope), float(fit.high_slope))
