"""Probabilities from decision values on domains that were held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedKFold

from domainwise.arrays import Array
from domainwise.checks.inputs import check_sample_domain, quiet_about_domains
from domainwise.checks.warn import warn_caller

#: Groups of domains that are held out in turn, at most.
MAX_FOLDS = 5


@dataclass(frozen=True)
class Calibration:
    """A logistic regression on decision values in units of their spread."""

    scale: float
    model: LogisticRegression

    def probabilities(self, values: Array) -> Array:
        """Return the probability of each class."""
        return np.asarray(self.model.predict_proba(values.reshape(len(values), -1) / self.scale))


def calibrate(estimator: Any, X: Array, y: Array, sample_domain: Any) -> Calibration:
    """Fit the estimator without some domains, and learn probabilities on their decision values."""
    domain = check_sample_domain(sample_domain, len(X), estimator.domain_kernel)
    given = None if sample_domain is None else np.asarray(sample_domain)
    held_values, held_targets = [], []
    for train, held in _folds(y, domain.codes):
        model = clone(estimator).set_params(probability=False)
        rows = np.ix_(train, train) if estimator.kernel == "precomputed" else train
        with quiet_about_domains():
            model.fit(X[rows], y[train], sample_domain=None if given is None else given[train])
        rows = np.ix_(held, train) if estimator.kernel == "precomputed" else held
        held_values.append(model.decision_function(X[rows]).reshape(len(held), -1))
        held_targets.append(y[held])
    values = np.concatenate(held_values)
    scale = float(values.std()) or 1.0
    logistic = LogisticRegression(max_iter=1000).fit(values / scale, np.concatenate(held_targets))
    return Calibration(scale, logistic)


def _folds(y: Array, domains: Array | None) -> Iterator[tuple[Array, Array]]:
    """Groups of domains held out in turn; stratified folds, with a warning, where that fails."""
    n_domains = 0 if domains is None else len(np.unique(domains))
    if n_domains > 1:
        folds = list(GroupKFold(min(MAX_FOLDS, n_domains)).split(y, y, domains))
        n_classes = len(np.unique(y))
        if all(len(np.unique(y[train])) == n_classes for train, _ in folds):
            yield from folds
            return
        reason = "a class occurs in one group of domains only"
    else:
        reason = "sample_domain names fewer than two domains"
    warn_caller(
        f"probabilities are calibrated on stratified folds, not on held-out domains: {reason}; "
        "on unseen domains they may be too sure"
    )
    smallest = int(np.unique(y, return_counts=True)[1].min())
    if smallest < 2:
        raise ValueError("probability=True needs at least two rows of each class")
    yield from StratifiedKFold(min(MAX_FOLDS, smallest)).split(y, y)
