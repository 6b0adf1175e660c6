"""How far a score moves if other rows of the same kind had been drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from domainwise.arrays import Array

#: Of an interval, in all.
OUTSIDE_SHARE = 0.05


def defined_score(score: Callable[[Array], float], rows: Array) -> float:
    """Score of some rows; NaN where it is not defined, such as AUC where there is one class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(score(rows))
        except (ValueError, ArithmeticError):
            return float("nan")


def row_interval(
    score: Callable[[Array], float], rows: Array, *, n_draws: int = 200, seed: int = 0
) -> tuple[float, float]:
    """Middle 95 % of the scores of rows drawn with replacement; draws without a score are left out.

    ``score`` takes numbers of rows. The ends are NaN where most draws have no score.
    """
    rng = np.random.default_rng(seed)
    draws = rng.choice(rows, (n_draws, len(rows)))
    scores = np.array([defined_score(score, some) for some in draws])
    scores = scores[np.isfinite(scores)]
    if 2 * len(scores) < n_draws:
        return float("nan"), float("nan")
    low, high = np.quantile(scores, [OUTSIDE_SHARE / 2, 1 - OUTSIDE_SHARE / 2])
    return float(low), float(high)
