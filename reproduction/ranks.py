"""Means over repeats, and average ranks of methods over data sets, with tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from domainwise.base.arrays import Array

#: Shown next to all p-values of paired tests.
PAIRED_CAVEAT = (
    "p-values are approximate: repeats draw from the same domains and are not independent"
)


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (with divisor n - 1) over repeats."""

    mean: float
    deviation: float
    n: int


def summarize(values: Sequence[float]) -> Summary:
    """Return the mean and the standard deviation, which is NaN for a single value.

    >>> summarize([1.0, 3.0])
    Summary(mean=2.0, deviation=1.4142135623730951, n=2)
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        return Summary(float("nan"), float("nan"), 0)
    deviation = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else float("nan")
    return Summary(float(np.mean(numbers)), deviation, len(numbers))


@dataclass(frozen=True)
class Ranking:
    """Average ranks over data sets (1 is best), Friedman's test and Nemenyi's critical difference.

    Two methods whose average ranks differ by less than ``critical_difference`` do not differ
    significantly at the 5 % level.
    """

    methods: tuple[str, ...]
    average_ranks: Array
    p_value: float | None
    critical_difference: float
    n_datasets: int


def rank_methods(scores: Array, methods: Sequence[str]) -> Ranking:
    """Rank methods (columns) over data sets (rows); larger scores are better.

    ``p_value`` is from Friedman's test; None with fewer than two data sets or three methods
    (J. Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006).

    >>> rank_methods(np.array([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]), ["a", "b", "c"]).average_ranks
    array([1. , 2.5, 2.5])
    """
    score_table = np.asarray(scores, dtype=np.float64)
    n_datasets, n_methods = score_table.shape
    ranks = stats.rankdata(-score_table, axis=1)
    p_value = None
    if n_datasets >= 2 and n_methods >= 3:
        friedman_p = float(stats.friedmanchisquare(*score_table.T).pvalue)
        p_value = friedman_p if np.isfinite(friedman_p) else 1.0
    quantile = stats.studentized_range.ppf(0.95, n_methods, np.inf) if n_methods > 1 else 0.0
    factor = np.sqrt(n_methods * (n_methods + 1) / (6.0 * max(n_datasets, 1)))
    critical_difference = float(quantile / np.sqrt(2) * factor)
    return Ranking(tuple(methods), ranks.mean(axis=0), p_value, critical_difference, n_datasets)
