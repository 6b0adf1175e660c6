"""Thresholds for prediction sets on new domains: quantiles of nonconformity scores.

A nonconformity score says how poorly a class or value fits a prediction. All domains have equal
weights. The functions at the end of this module compute and read the thresholds in model files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.metaestimators import available_if

from domainwise.base.arguments import CONSTRAINTS
from domainwise.base.arrays import Array, ArrayLike, MaybeArray, evenly_spaced
from domainwise.base.messages import warn_caller
from domainwise.held_out.calibration.curves import class_columns, equal_weights
from domainwise.held_out.scoring.predictions import Outputs, codes_of

#: Tolerance for rounding errors, so that a coverage of 0.9 needs nine domains, not ten.
TOLERANCE = 1e-9
#: The coverage in reports.
REPORTED_COVERAGE = 0.9
#: Numbers of domains that are called few. Approximate thresholds need at least the first of them;
#: with more than the last, guaranteed ones are finite for a coverage of 90 %.
FEW_DOMAINS = range(3, 9)
#: Numbers of scores per domain, and of all domains, from which approximate thresholds are computed,
#: and the largest finite score.
MAX_SCORES, MAX_ALL_SCORES, LARGEST = 500, 50_000, 1e300
#: Thresholds are stored for coverages of 1 / COVERAGE_STEPS, 2 / COVERAGE_STEPS, and so on.
COVERAGE_STEPS = 100


def needed_domains(coverage: float) -> int:
    """Return the smallest number of calibration domains for which thresholds are finite.

    >>> needed_domains(0.9), needed_domains(0.8), needed_domains(0.5)
    (9, 4, 1)
    """
    if not CONSTRAINTS["coverage"][0].is_satisfied_by(coverage):
        raise ValueError(f"coverage must be between 0 and 1, such as 0.9; got {coverage!r}.")
    return max(1, math.ceil(1.0 / (1.0 - coverage) - TOLERANCE) - 1)


def reported_coverage(n_domains: int) -> float | None:
    """Return the coverage in reports, or None if approximate thresholds are infinite."""
    return REPORTED_COVERAGE if n_domains >= FEW_DOMAINS[0] else None


class Thresholds:
    """A base class that computes prediction sets and intervals from a threshold."""

    threshold: Callable[..., float]

    def sets(self, scores: Array, coverage: float) -> Array:
        """Return whether each class is in the set: its score must not exceed the threshold."""
        return np.asarray(scores <= self.threshold(coverage, warn=True))

    def intervals(self, predictions: Array, coverage: float) -> Array:
        """Return lower and upper bounds around predicted values, of shape (n, 2)."""
        radius = self.threshold(coverage, warn=True)
        return np.column_stack([predictions - radius, predictions + radius])


@dataclass(frozen=True)
class DomainQuantiles(Thresholds):
    """Nonconformity scores of held-out rows, with their weights (theory 16).

    Each of K domains has weight 1 / (K + 1), which its rows share equally. The new domain, whose
    scores are unknown, has the remaining weight.
    """

    scores: Array  #: ascending
    levels: Array  #: cumulative weights of the scores
    n_domains: int
    #: Approximate thresholds for coverages of 1 % to 100 %, if coverage need not be guaranteed.
    approximate: Array | None = None

    @classmethod
    def from_scores(
        cls, scores: Array, domains: Array, weights: Array | None = None
    ) -> DomainQuantiles:
        """Create quantiles from the score and domain of each row; NaN scores become infinity."""
        scores = np.where(np.isnan(scores), np.inf, np.asarray(scores, dtype=np.float64))
        domain_codes = np.unique(domains, return_inverse=True)[1]
        n_domains, order = int(domain_codes.max()) + 1, np.argsort(scores, kind="stable")
        row_weights = equal_weights(domain_codes, sample_weight=weights)[order]
        levels = np.cumsum(row_weights) * (n_domains / (n_domains + 1.0))
        return cls(scores[order], levels, n_domains)

    @classmethod
    def approximately(
        cls,
        scores: Array,
        domains: Array,
        weights: Array | None = None,
        *,
        are_probabilities: bool,
    ) -> DomainQuantiles:
        """Create quantiles that are finite from three domains on, without a guarantee.

        Thresholds are at most those of :func:`approximate_thresholds`. ``are_probabilities`` tells
        whether scores are 1 - p; they are then scaled as -log(p).
        """
        quantiles = cls.from_scores(scores, domains, weights)
        if quantiles.n_domains < FEW_DOMAINS[0]:
            return quantiles
        scores = np.nan_to_num(scores, nan=np.inf)
        if are_probabilities:
            with np.errstate(divide="ignore"):
                scores = -np.log1p(-scores)
        weights = np.ones(len(scores)) if weights is None else weights
        order = np.argsort(scores, kind="stable")
        rows_by_domain = [order[domains[order] == domain] for domain in np.unique(domains)]
        groups = [(scores[rows], weights[rows]) for rows in rows_by_domain]
        coverages = np.arange(1, COVERAGE_STEPS + 1) / COVERAGE_STEPS
        thresholds = approximate_thresholds(groups, coverages)
        if are_probabilities:
            thresholds = -np.expm1(-thresholds)
        return replace(quantiles, approximate=thresholds)

    def threshold(self, coverage: float, *, warn: bool = False) -> float:
        """Return the score that a new row exceeds with probability at most 1 - coverage."""
        n_needed, n_domains = needed_domains(coverage), self.n_domains
        threshold = math.inf
        if n_domains >= n_needed:
            index = int(np.searchsorted(self.levels, coverage - TOLERANCE))
            threshold = float(self.scores[min(index, len(self.scores) - 1)])
        if self.approximate is not None:
            step = math.ceil(coverage * COVERAGE_STEPS - TOLERANCE)
            threshold = min(threshold, float(self.approximate[step - 1]))
        elif n_domains < n_needed and warn:
            warn_few_domains(coverage, n_domains, f"at least {n_needed}")
        return threshold


def warn_few_domains(coverage: float, n_domains: int, needed: str) -> None:
    """Warn that a threshold is infinite."""
    warn_caller(
        f"coverage={coverage} needs {needed} calibration domains, but there are {n_domains}. Sets "
        "contain all classes and intervals are infinite. Use a coverage of at most "
        f"{n_domains / (n_domains + 1):.3g}, or more domains."
    )


def approximate_thresholds(groups: Sequence[tuple[Array, Array]], coverages: Array) -> Array:
    """Return approximate thresholds for each coverage (theory 16.2).

    ``groups`` contains the scores of each domain, ascending, and the weights of its rows. The
    quantile of all scores is multiplied by the smallest factor of at least 1 for which the other
    domains' quantiles, multiplied by it, cover the scores of a domain on average, minus half a
    standard error.
    """
    # Evenly spaced scores, with the largest one, represent a domain with many rows.
    n_domains = len(groups)
    n_most = min(MAX_SCORES, max(MAX_ALL_SCORES // n_domains, 10))
    spaced = [evenly_spaced(len(scores), n_most) for scores, _ in groups]
    pairs = [(group[0][i], group[1][i]) for group, i in zip(groups, spaced, strict=True)]
    codes = np.repeat(np.arange(n_domains), [len(i) for i in spaced])
    scores = np.minimum(np.concatenate([scores for scores, _ in pairs]), LARGEST)
    # Each domain's share of scores up to and including a score.
    shares = np.concatenate([np.cumsum(weights) / weights.sum() for _, weights in pairs])
    weights = np.concatenate([weights / weights.sum() for _, weights in pairs])
    order = np.argsort(scores, kind="stable")
    codes, scores, weights, shares = codes[order], scores[order], weights[order], shares[order]
    squares = shares**2 - (shares - weights) ** 2  # what a score adds to the square of its share
    smallest = min(scores[scores > 0], default=1.0)

    def quantiles(is_kept: Array) -> Array:
        levels = np.cumsum(weights[is_kept])
        indices = np.searchsorted(levels, coverages * levels[-1] - TOLERANCE)
        return np.maximum(scores[is_kept][np.minimum(indices, len(levels) - 1)], smallest)

    pooled_quantiles = quantiles(codes >= 0)
    other_quantiles = np.array([quantiles(codes != code) for code in range(n_domains)])
    thresholds = []
    for i, coverage in enumerate(coverages):
        factors = np.maximum(scores / other_quantiles[codes, i], 1.0)
        order = np.argsort(factors, kind="stable")
        # Mean and standard error, over domains, of the share that a factor covers.
        means = np.cumsum(weights[order]) / n_domains
        variances = (np.cumsum(squares[order]) - n_domains * means**2) / (n_domains - 1)
        errors = np.sqrt(np.maximum(variances, 0.0) / n_domains)
        is_enough = means - 0.5 * errors >= coverage - TOLERANCE
        is_enough &= np.append(np.diff(factors[order]) > 0, True)  # the last of equal factors
        is_enough[-1] = True
        with np.errstate(over="ignore"):  # infinite scores
            thresholds.append(factors[order][np.argmax(is_enough)] * pooled_quantiles[i])
    # Larger coverages have larger sets.
    finite_thresholds = np.maximum.accumulate(thresholds)
    return np.where(finite_thresholds < LARGEST, finite_thresholds, np.inf)


@dataclass(frozen=True)
class StoredThresholds(Thresholds):
    """Thresholds for coverages of 1 %, 2 % and so on, computed by :func:`calibrate_sets`."""

    thresholds: Array
    n_domains: int

    def threshold(self, coverage: float, *, warn: bool = False) -> float:
        """Return the stored threshold; infinity if there were too few domains for the coverage."""
        step = round(coverage * COVERAGE_STEPS)
        if step <= len(self.thresholds):
            return float(self.thresholds[step - 1])
        if warn:
            warn_few_domains(coverage, self.n_domains, f"at least {FEW_DOMAINS[0]}")
        return math.inf


def promise(calibration: str, n_domains: int) -> str:
    """Return the value of ``promise_``: how reliable the coverage is.

    >>> promise("split", 4), promise("cv", 4), promise("cv", 9)
    ('guaranteed', 'approximate, few sites', 'approximate')
    """
    if calibration == "split":
        return "guaranteed"
    return "approximate" + ", few sites" * (n_domains in FEW_DOMAINS)


Method = TypeVar("Method", bound=Callable[..., Any])


def only_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """Typed form of :func:`sklearn.utils.metaestimators.available_if`."""
    decorator: Callable[[Method], Method] = available_if(check)
    return decorator


class HasThresholds:
    """A model with thresholds for new domains.

    A subclass sets ``_quantiles`` in ``fit``: "plain" for rows predicted one by one, and optionally
    "context" for the rows of a domain predicted together. A model adapted to a site also has
    ``site_quantiles_``.
    """

    _quantiles: dict[str, DomainQuantiles]

    def _thresholds(self, sample_domain: Any) -> Thresholds:
        """Return the thresholds for "context" if available and domains are passed, else "plain"."""
        quantiles: dict[str, Any] = getattr(self, "site_quantiles_", self._quantiles)
        mode = "context" if sample_domain is not None else "plain"
        return quantiles.get(mode, quantiles["plain"])


class PredictionSets(HasThresholds):
    """A classifier that predicts sets of classes."""

    @only_if(is_classifier)
    def predict_set(
        self, X: ArrayLike, sample_domain: MaybeArray = None, *, coverage: float = 0.9
    ) -> Array:
        """Return a prediction set for each row: the classes that the row may belong to.

        {as_in_predict}
        coverage : float, default=0.9
            Share of rows whose set contains the true class, on average over new domains.

        Returns
        -------
        sets : ndarray of bool of shape (n_rows, n_classes)
            Columns are in the order of ``classes_``; larger coverages give larger sets. If there
            are too few domains, sets contain all classes, with a warning.
        """
        scores = self._class_scores(X, sample_domain)
        return self._thresholds(sample_domain).sets(scores, coverage)

    def _class_scores(self, X: Any, sample_domain: Any) -> Array:
        model: Any = self
        return np.asarray(1.0 - model.predict_proba(X, sample_domain))


class PredictionIntervals(HasThresholds):
    """A regressor that predicts intervals."""

    @only_if(is_regressor)
    def predict_interval(
        self, X: ArrayLike, sample_domain: MaybeArray = None, *, coverage: float = 0.9
    ) -> Array:
        """Return a prediction interval for each row.

        {as_in_predict}
        coverage : float, default=0.9
            Share of rows whose interval contains the target, on average over new domains.

        Returns
        -------
        intervals : ndarray of shape (n_rows, 2)
            Lower and upper bounds. If there are too few domains, they are infinite, with a warning.
        """
        model: Any = self
        predictions = model.predict(X, sample_domain)
        return self._thresholds(sample_domain).intervals(predictions, coverage)


def calibrate_sets(outputs: Sequence[Outputs], classes: Any) -> dict[str, Any]:
    """Calibrate prediction sets or intervals on outputs for the rows of held-out domains.

    Columns of the outputs are in the order of ``classes``. The result can be written as JSON. Its
    entry ``of`` names the outputs from which scores are computed.
    ``thresholds`` are for coverages of 1 %, 2 % and so on, if there are enough domains for them.
    ``size`` is the mean number of classes in a set, or the width of intervals, at ``coverage``.
    """
    code_by_domain: dict[Any, int] = {}
    scores_of_outputs = (nonconformity(output, classes) for output in outputs)
    output_names, class_scores, target_scores = zip(*scores_of_outputs, strict=True)
    codes = [code_by_domain.setdefault(o.domain, len(code_by_domain)) for o in outputs]
    domain_codes = np.repeat(codes, [len(scores) for scores in target_scores])
    weights = [output.row_weights for output in outputs]
    rows = np.concatenate(target_scores), domain_codes, np.concatenate(weights)
    are_probabilities = output_names[-1] == "probabilities"
    quantiles = DomainQuantiles.approximately(*rows, are_probabilities=are_probabilities)
    n_domains = quantiles.n_domains
    coverages = [step / COVERAGE_STEPS for step in range(1, COVERAGE_STEPS)]
    coverage = reported_coverage(n_domains)
    threshold = quantiles.threshold(coverage) if coverage else np.inf
    size = 2 * threshold
    if classes is not None:
        in_sets = [(scores <= threshold).sum(axis=1) for scores in class_scores]
        mean_sizes = [np.average(n, weights=w) for n, w in zip(in_sets, weights, strict=True)]
        size = float(np.mean(mean_sizes))
    return {
        "promise": promise("cv", n_domains),
        "n_domains": n_domains,
        "of": output_names[-1],
        "thresholds": [t for t in map(quantiles.threshold, coverages) if np.isfinite(t)],
        "coverage": coverage,
        "size": size if np.isfinite(size) else None,
    }


def nonconformity(outputs: Outputs, classes: Any) -> tuple[str, Array, Array]:
    """Return the name of the outputs used, and the nonconformity scores of classes and targets.

    Scores of classes have one column per class, or a single column for a continuous target. Scores
    of targets are those of the observed classes or values.
    """
    if classes is None:
        errors = np.abs(np.asarray(outputs.target, dtype=np.float64) - outputs.prediction)
        return "value", errors[:, None], errors
    output_name, scores = scores_by_class(outputs, np.asarray(classes))
    class_codes = codes_of(outputs.target, np.asarray(classes))
    return output_name, scores, scores[np.arange(len(class_codes)), class_codes]


def scores_by_class(outputs: Outputs, classes: Array) -> tuple[str, Array]:
    """Return the name of the outputs used, and the nonconformity score of each class in each row.

    The score is 1 - p or, for decision values, the largest value minus that of the class.
    """
    if outputs.probabilities is not None:
        return "probabilities", 1.0 - outputs.probabilities
    if outputs.decisions is not None:
        decision_values = class_columns(np.asarray(outputs.decisions, dtype=np.float64))
        return "decisions", decision_values.max(axis=1, keepdims=True) - decision_values
    return "prediction", 1.0 - np.eye(len(classes))[codes_of(outputs.prediction, classes)]


def stored_quantiles(calibration: Mapping[str, Any], coverage: float) -> StoredThresholds:
    """Check the coverage, and return the thresholds stored by :func:`calibrate_sets`."""
    needed_domains(coverage)  # raises an error unless 0 < coverage < 1
    if abs(coverage * COVERAGE_STEPS - round(coverage * COVERAGE_STEPS)) > 1e-6:
        raise ValueError(f"coverage must be a multiple of 0.01, such as 0.9; got {coverage}.")
    thresholds = np.array(calibration["thresholds"], dtype=np.float64)
    return StoredThresholds(thresholds, calibration["n_domains"])


def describe_sets(calibration: Mapping[str, Any]) -> str:
    """Describe the coverage and size of prediction sets in one line."""
    n_domains, size, coverage = (calibration[name] for name in ("n_domains", "size", "coverage"))
    promised, _, remark = calibration["promise"].partition(", ")
    remark = f" ({remark})" if remark else ""
    description = f"{promised} coverage{remark}, calibrated on {n_domains} held-out domains"
    if coverage is None or size is None:
        return description
    size_text = f"sets contain {size:.2g} classes on average"
    if calibration["of"] == "value":
        size_text = f"intervals have a width of {size:.3g}"
    return f"{description}; {size_text} at a coverage of {100 * coverage:.0f} %"
