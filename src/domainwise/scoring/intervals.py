"""How far a score moves if other rows, or other domains, of the same kind had been drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from domainwise.arrays import Array

#: Draws of rows, and of domains, for an interval that leaves out this share on either side.
DRAWS, BOOTSTRAP, TAIL = 200, 2000, 0.025


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


def expected_score(scores: Sequence[float] | Array, seed: int) -> tuple[float, float, float]:
    """Mean over domains, and an interval of it by drawing domains with replacement.

    Domains without a score are left out; one domain has no interval. Few domains vary less than
    all do, so that the interval is widened as that of Student's t is. It is approximate.
    """
    known = np.asarray(scores, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return float("nan"), float("nan"), float("nan")
    mean = float(known.mean())
    if len(known) < 2:
        return mean, float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(len(known), size=(BOOTSTRAP, len(known)))
    # Shares are at most 1, negative errors at most 0.
    most = next((bound for bound in (0.0, 1.0) if known.max() <= bound), np.inf)
    return mean, *widened(mean, known[draws].mean(axis=1), len(known), most)


def widened(mean: float, draws: Array, n: int, most: float) -> tuple[float, float]:
    """Ends of an interval from means of draws of ``n`` domains, as wide as Student's t asks for."""
    if n < 2:
        return float("nan"), float("nan")
    low, high = np.quantile(draws, [TAIL, 1 - TAIL])
    wider = np.sqrt(n / (n - 1)) * stdtrit(n - 1, TAIL) / ndtri(TAIL)
    return float(mean - wider * (mean - low)), float(min(mean + wider * (high - mean), most))
