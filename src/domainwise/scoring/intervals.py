"""How far a score moves if other rows of the same kind had been drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv

from domainwise.arrays import Array

#: Draws of rows, for an interval that leaves out this share on either side.
DRAWS, TAIL = 200, 0.025


def defined_score(score: Callable[[Array], float], rows: Array) -> float:
    """Score of some rows; NaN where it is not defined, such as AUC where there is one class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(score(rows))
        except (ValueError, ArithmeticError, AttributeError):
            return float("nan")


def row_interval(score: Callable[[Array], float], rows: Array) -> tuple[float, float]:
    """Middle 95 % of scores of drawn rows; NaN where most draws have none, or all the same one."""
    draws = np.random.default_rng(0).choice(rows, (DRAWS, len(rows)))
    scores = np.array([defined_score(score, some) for some in draws])
    if np.isfinite(scores).mean() < 0.5:
        return float("nan"), float("nan")
    low, high = np.nanquantile(scores, [TAIL, 1 - TAIL])
    return (float(low), float(high)) if high > low else (float("nan"), float("nan"))


def share_interval(hits: float, n: float) -> tuple[float, float]:
    """Exact 95 % interval of a share, by Clopper and Pearson."""
    low = betaincinv(hits, n - hits + 1, TAIL) if hits > 0 else 0.0
    high = betaincinv(hits + 1, n - hits, 1 - TAIL) if hits < n else 1.0
    return float(low), float(high)
