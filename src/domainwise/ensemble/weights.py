"""Scores by domain, and what members of an ensemble count by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domainwise.arrays import Array
from domainwise.calibration.curves import equal_weights

#: About one standard deviation of a difference of two members over nine domains: members that are
#: further behind than chance would put them count little.
TEMPERATURE = 0.02
#: Parts of members that see rows one by one, and in context, before domains left out have spoken.
PRIOR_SHARES = (0.6, 0.4)


def balanced_accuracies(codes: Array, predicted: Array, domains: Array, n_domains: int) -> Array:
    """Balanced accuracy in each domain, over the classes it has; NaN where there are no rows."""
    weights = equal_weights(domains, codes)
    total = np.bincount(domains, weights, minlength=n_domains)
    hits = np.bincount(domains, weights * (predicted == codes), minlength=n_domains)
    return np.asarray(hits / np.where(total > 0, total, np.nan))


def squared_errors(y: Array, predicted: Array, domains: Array, n_domains: int) -> Array:
    """Mean squared error in each domain; NaN where there are no rows."""
    count = np.bincount(domains, minlength=n_domains)
    total = np.bincount(domains, (y - predicted) ** 2, minlength=n_domains)
    return np.asarray(total / np.where(count > 0, count, np.nan))


def exponent_scores(quality: Array, *, errors: bool) -> Array:
    """What members are weighted by: mean accuracy, or minus half the logarithm of the mean error.

    ``quality`` has shape (n_members, n_domains). One per cent of root mean squared error counts as
    one point of accuracy. An error may vanish against the target's variance, which is 1.
    """
    mean = np.nanmean(quality, axis=1)
    return np.asarray(-0.5 * np.log(np.maximum(mean, 1e-12)) if errors else mean)


def softened(scores: Array, prior: Sequence[float] | None = None) -> Array:
    """Weights proportional to ``exp(score / temperature)``, times their prior if there is one."""
    relative = np.exp((scores - scores.max()) / TEMPERATURE)
    relative = relative if prior is None else relative * np.asarray(prior)
    return np.asarray(relative / relative.sum())
