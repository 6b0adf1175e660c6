"""Statistics of scores: confidence intervals and paired tests.

Repeats of one data set share domains and are not independent. The p-values of paired tests are
therefore approximate and too small, and every output with p-values says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import betaincinv, expit, ndtri, stdtrit

from domainwise.base.arrays import Array
from domainwise.base.process import filtered_warnings

#: Number of bootstrap samples of rows, and of domains; probability of each tail of an interval.
ROW_SAMPLES, DOMAIN_SAMPLES, TAIL = 200, 2000, 0.025
NAN = float("nan")


def defined_score(score: Callable[..., float], *arrays: Any) -> float:
    """Return the score of arrays; NaN if it is undefined, as AUC is for a single class."""
    with filtered_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(score(*arrays))
        except (ValueError, ArithmeticError, AttributeError):
            return float("nan")


def row_interval(score: Callable[[Array], float], rows: Array) -> tuple[float, float]:
    """Return a 95 % bootstrap interval; NaN if most scores are undefined or their range is 0."""
    samples = np.random.default_rng(0).choice(rows, (ROW_SAMPLES, len(rows)))
    scores = np.array([defined_score(score, sample) for sample in samples])
    if np.isfinite(scores).mean() >= 0.5:
        low, high = np.nanquantile(scores, [TAIL, 1 - TAIL])
        if high > low:
            return float(low), float(high)
    return float("nan"), float("nan")


def share_interval(hits: float, n: float, tail: float = TAIL) -> tuple[float, float]:
    """Return the exact confidence interval for a proportion (Clopper and Pearson)."""
    low = betaincinv(hits, n - hits + 1, tail) if hits > 0 else 0.0
    high = betaincinv(hits + 1, n - hits, 1 - tail) if hits < n else 1.0
    return float(low), float(high)


def mean_error(values: Array, weights: Array | None = None) -> tuple[float, float]:
    """Return the mean of values, and its standard error; NaN for a single row of weight 1."""
    weights = np.ones(len(values)) if weights is None else weights
    total = weights.sum()
    mean = weights @ values / total
    variance = weights @ (values - mean) ** 2 / (total - 1.0) if total > 1 else np.nan
    return float(mean), float(np.sqrt(variance / total))


#: Maximum number of iterations of Newton's method, and its tolerance.
MAX_STEPS, TOLERANCE = 100, 1e-12


def logistic_fit(design: Array, y: Array, offset: Array, weights: Array) -> tuple[float, float]:
    """Return the last maximum likelihood parameter and its standard error; NaN if infinite."""
    parameters = np.zeros(design.shape[1])
    step, log_likelihood = parameters, -np.inf
    for _ in range(MAX_STEPS):
        size = 1.0
        while True:  # halve the step until the likelihood does not decrease
            trial = parameters + size * step
            outputs = offset + design @ trial
            trial_likelihood = float(weights @ (y * outputs - np.logaddexp(0.0, outputs)))
            if trial_likelihood >= log_likelihood - TOLERANCE * weights.sum() or size < 1e-6:
                break
            size /= 2
        parameters, log_likelihood = trial, trial_likelihood
        p = expit(outputs)
        information = (design * (weights * p * (1 - p))[:, None]).T @ design
        if np.linalg.cond(information) > 1 / TOLERANCE:  # the classes are separated
            break
        step = np.linalg.solve(information, design.T @ (weights * (y - p)))
        if np.abs(step).max() < TOLERANCE * (1 + np.abs(parameters).max()):
            error = np.sqrt(np.linalg.inv(information)[-1, -1])
            return float(parameters[-1] + step[-1]), float(error)
    return NAN, NAN


def _is_error(scoring: object) -> bool:
    """Return whether scores are errors with a negative sign, as those of ensembles by default."""
    is_negated = "greater_is_better=False" in str(scoring)  # a scorer from make_scorer
    return scoring is None or is_negated or str(scoring).startswith("neg_")


def expected_score(
    scores: Sequence[float] | Array, seed: int, scoring: object = None
) -> tuple[float, float, float]:
    """Return the mean score over domains, and an approximate 95 % confidence interval for it.

    Domains are resampled. Those without a score are ignored; a single domain has no interval.
    Bootstrap intervals from few domains are too narrow, and are widened by the ratio of the
    quantiles of Student's t and the normal distribution. ``scoring`` is the scorer or its name.
    """
    defined_scores = np.sort(_drop_undefined(scores))  # names of domains must not matter
    n_domains = len(defined_scores)
    mean = float(defined_scores.mean()) if n_domains else float("nan")
    if n_domains < 2:
        return mean, float("nan"), float("nan")
    indices = np.random.default_rng(seed).integers(n_domains, size=(DOMAIN_SAMPLES, n_domains))
    # Proportions and R² are at most 1, and errors with a negative sign at most 0.
    bounds = (0.0, 1.0) if _is_error(scoring) else (1.0,)
    upper = next((bound for bound in bounds if defined_scores.max() <= bound), np.inf)
    return mean, *widened_interval(mean, defined_scores[indices].mean(axis=1), n_domains, upper)


def _drop_undefined(scores: Sequence[float] | Array) -> Array:
    values = np.asarray(scores, dtype=np.float64)
    return values[np.isfinite(values)]


def widened_interval(
    mean: float, bootstrap_means: Array, n: int, upper: float
) -> tuple[float, float]:
    """Return a 95 % confidence interval from bootstrap means over ``n`` domains, wider for small n.

    The upper end is at most ``upper``.
    """
    if n < 2:
        return float("nan"), float("nan")
    low, high = np.quantile(bootstrap_means, [TAIL, 1 - TAIL])
    factor = np.sqrt(n / (n - 1)) * stdtrit(n - 1, TAIL) / ndtri(TAIL)
    return float(mean - factor * (mean - low)), float(min(mean + factor * (high - mean), upper))


def expected_range(
    scores: Sequence[float] | Array, scoring: object = None, n_new: int = 1
) -> tuple[float, float] | None:
    """Return a range that contains the score of a new domain with 90 % probability (theory 18).

    With ``n_new`` new domains, the range is for their mean score.

    The range is a prediction interval based on Student's t distribution. Errors and 1 - R² are
    first transformed to logarithms; for proportions such as accuracy, the range is clipped to
    [0, 1]. It is valid for a new domain of similar size. With fewer than four domains, the result
    is None. ``scoring`` is the scorer or its name.

    >>> [round(bound, 2) for bound in expected_range([0.7, 0.8, 0.75, 0.9, 0.65])]
    [0.54, 0.98]
    """
    transformed_scores = defined_scores = _drop_undefined(scores)
    n_domains = len(defined_scores)
    if n_domains < 4:
        return None
    bound = None  # if set, the interval is computed for the logarithm of bound - score
    if _is_error(scoring) and (defined_scores < 0.0).all():
        bound = 0.0
    elif scoring in ("r2", "explained_variance") and (defined_scores < 1.0).all():
        bound = 1.0
    if bound is not None and n_new == 1:
        transformed_scores = np.log(bound - defined_scores)
    mean, deviation = transformed_scores.mean(), transformed_scores.std(ddof=1)
    if bound is not None and n_new > 1:  # the logarithm of a mean, to the first order
        mean, deviation = np.log(bound - mean), deviation / (bound - mean)
    radius = -stdtrit(n_domains - 1, 0.05) * deviation * np.sqrt(1.0 / n_new + 1.0 / n_domains)
    low, high = float(mean - radius), float(mean + radius)
    if bound is not None:
        return bound - float(np.exp(high)), bound - float(np.exp(low))
    if defined_scores.min() >= 0.0 and defined_scores.max() <= 1.0:
        return max(low, 0.0), min(high, 1.0)
    return low, high


@dataclass(frozen=True)
class Paired:
    """A paired comparison: mean difference (first minus second), and p-value.

    ``p_value`` is None if there are too few pairs for a p-value below 0.05.
    """

    difference: float
    p_value: float | None


#: With five pairs, the two-sided p-value of the signed-rank test is at least 1/16.
MIN_PAIRS = 6


def compare(first: Mapping[int, float], second: Mapping[int, float]) -> Paired:
    """Compare scores on shared repeats or domains with Wilcoxon's signed-rank test.

    >>> compare({0: 4.0, 1: 3.0}, {0: 2.0, 1: 3.0, 2: 7.0})
    Paired(difference=1.0, p_value=None)
    """
    common_keys = sorted(first.keys() & second.keys())
    pairs = np.array([(first[key], second[key]) for key in common_keys]).reshape(-1, 2)
    differences = pairs[:, 0] - pairs[:, 1]
    scale = float(np.abs(pairs).max(initial=0.0))
    if 0 < scale < np.inf:  # equal differences must be ties, in spite of rounding errors
        differences = np.round(differences / scale, 12) * scale
    mean = float(np.mean(differences)) if common_keys else float("nan")
    if len(common_keys) < MIN_PAIRS:
        return Paired(mean, None)
    if not np.any(differences):
        return Paired(mean, 1.0)
    with filtered_warnings():
        # With ties and zeros, scipy uses the normal approximation and warns.
        warnings.simplefilter("ignore")
        return Paired(mean, float(stats.wilcoxon(differences).pvalue))


def p_text(p_value: float | None) -> str:
    """Format a p-value with two or three decimals, or as "<0.001"."""
    if p_value is None:
        return "–"
    if p_value < 0.001:
        return "<0.001"
    return f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


def in_words(number: int) -> str:
    """Write a count up to ten as a word, and a larger one in digits.

    >>> in_words(3), in_words(1234)
    ('three', '1,234')
    """
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else f"{number:,}"
