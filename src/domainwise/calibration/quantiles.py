"""Thresholds that hold on a new domain: quantiles of scores in which domains count the same."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from domainwise.arrays import Array
from domainwise.calibration.curves import class_columns
from domainwise.checks.arguments import CONSTRAINTS
from domainwise.checks.warn import warn_caller

#: Sums of weights, and 1 / (1 - coverage), are rounded: nine domains are enough for 0.9.
TOLERANCE = 1e-9
#: What pages show, if there are domains enough.
USUAL_COVERAGES = (0.5, 0.8, 0.9)


def needed_domains(coverage: float) -> int:
    """Calibration domains without which a set that keeps its promise holds everything.

    >>> needed_domains(0.9), needed_domains(0.8), needed_domains(0.5)
    (9, 4, 1)
    """
    if not CONSTRAINTS["coverage"][0].is_satisfied_by(coverage):
        raise ValueError(f"coverage={coverage!r} must lie between 0 and 1, such as 0.9")
    return max(1, math.ceil(1.0 / (1.0 - coverage) - TOLERANCE) - 1)


def usual_coverage(n_domains: int) -> float | None:
    """The largest of the usual coverages that so many domains allow, if they allow any."""
    return next((c for c in reversed(USUAL_COVERAGES) if needed_domains(c) <= n_domains), None)


def class_scores(probabilities: Array | None, decisions: Array | None = None) -> Array:
    """How strange each class would be for a row: 1 - p, or how far its value is behind the best."""
    if probabilities is not None:
        return np.asarray(1.0 - probabilities)
    values = class_columns(np.asarray(decisions, dtype=np.float64))
    return np.asarray(values.max(axis=1, keepdims=True) - values)


@dataclass(frozen=True)
class DomainQuantiles:
    """Scores of rows that a model has not learnt from, with their weights (theory, section 16).

    With K domains each weighs 1 / (K + 1), and the rows inside it the same. The rest belongs to the
    new domain, whose scores might be of any size.
    """

    scores: Array  #: ascending
    levels: Array  #: weight of all scores up to each
    n_domains: int

    @classmethod
    def of(cls, scores: Array, domains: Array) -> DomainQuantiles:
        """From the score and the domain of each row; a score that is not known is infinite."""
        scores = np.where(np.isnan(scores), np.inf, np.asarray(scores, dtype=np.float64))
        _, place, sizes = np.unique(domains, return_inverse=True, return_counts=True)
        order = np.argsort(scores, kind="stable")
        weights = 1.0 / (sizes[place[order]] * (len(sizes) + 1.0))
        return cls(scores[order], np.cumsum(weights), len(sizes))

    def threshold(self, coverage: float) -> float:
        """The score that a new row does not exceed with this probability; infinite if unknown."""
        if self.n_domains < needed_domains(coverage):
            return math.inf
        place = int(np.searchsorted(self.levels, coverage - TOLERANCE))
        return float(self.scores[min(place, len(self.scores) - 1)])

    def asked_threshold(self, coverage: float) -> float:
        """The same, with a warning if there are too few domains for it."""
        needed, most = needed_domains(coverage), self.n_domains / (self.n_domains + 1)
        if self.n_domains < needed:
            warn_caller(
                f"coverage={coverage} needs {needed} calibration domains, but there are "
                f"{self.n_domains}, which allow {most:.3g} at most: everything is returned"
            )
        return self.threshold(coverage)

    def sets(self, scores: Array, coverage: float) -> Array:
        """Which classes have scores up to the threshold."""
        return np.asarray(scores <= self.asked_threshold(coverage))

    def intervals(self, predicted: Array, coverage: float) -> Array:
        """Lower and upper ends, of shape (n, 2), around predicted values."""
        reach = self.asked_threshold(coverage)
        return np.column_stack([predicted - reach, predicted + reach])
