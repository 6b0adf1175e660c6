"""What a site's statistician asks: differences between sites, calibration, and net benefit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import logit, ndtri

from domainwise.base.arrays import Array, Frame, Label
from domainwise.base.files import to_json
from domainwise.estimators.adaptation.corrections import SourceOutputs
from domainwise.evaluation.problem import require
from domainwise.evaluation.results import MethodResult, Results, held_out_outputs
from domainwise.held_out.calibration.curves import equal_weights
from domainwise.held_out.scoring.pooling import PooledScores, pool_measure
from domainwise.held_out.scoring.predictions import roc_auc
from domainwise.held_out.scoring.site_calibration import (
    MIN_PROBABILITY,
    DecisionCurves,
    SiteEstimates,
    SiteRows,
    auc_estimate,
    check_threshold,
    decision_curves,
)
from domainwise.tables.errors import import_pandas


@dataclass(frozen=True)
class BetweenSites(PooledScores):
    """Scores of a method pooled over domains: a PooledScores with the scores of each domain.

    Attributes
    ----------
    table : data frame
        Columns: domain, rows, score, low and high (95 % interval), error (standard error). Errors
        such as RMSE are positive.
    """

    table: Frame = field(repr=False, compare=False)


def pool_method(results: Results, method: MethodResult) -> PooledScores | None:
    """Pool a method's scores, as displayed; None if no standard error is known."""
    if not any(np.isfinite(error) and error > 0 for error in method.errors.values()):
        return None
    domains = list(method.known)
    scores = np.array([results.measure.shown(method.known[name]) for name in domains])
    errors = np.array([method.errors.get(name, np.nan) for name in domains])
    n_rows = np.array([max(results.row_counts.get(name, 0), 1) for name in domains])
    return pool_measure(results.measure, scores, errors, n_rows, POOLED_LEVEL)


def between_sites(results: Results, method: MethodResult) -> BetweenSites:
    """Pool a method's scores, and list the scores of each domain, worst first."""
    pooled = pool_method(results, method)
    if pooled is None:
        raise ValueError(
            f"the standard errors of {method.label} are not known, because {results.measure.label} "
            "is a custom scorer, or is computed by scikit-learn and the method is not among those "
            "that the report describes. Choose another scorer, or the recommended method"
        )
    scores = [row for row in results.domain_scores(method) if row.domain in method.known]
    scores.sort(key=lambda row: method.known[row.domain])
    rows = [{**vars(row), "rows": results.row_counts.get(row.domain)} for row in scores]
    columns = ["domain", "rows", "score", "low", "high", "error"]
    return BetweenSites(**vars(pooled), table=import_pandas().DataFrame(rows, columns=columns))


#: Probability of the intervals of a domain, and of pooled intervals and ranges.
LEVEL, POOLED_LEVEL = 0.95, 0.9
#: Thresholds of a decision curve.
THRESHOLDS = np.arange(1, 100) / 100


@dataclass(frozen=True)
class SiteTable:
    """Estimates for each held-out domain, and pooled over domains."""

    table: Frame = field(repr=False)
    pooled: dict[Any, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the pooled quantities as JSON values.

        Returns
        -------
        values : dict
            ``sites`` (a list of rows) and ``pooled``.
        """
        pooled = {str(name): entry for name, entry in self.pooled.items()}
        return dict(to_json({"sites": self.table.to_dict("records"), "pooled": pooled}))


@dataclass(frozen=True)
class SiteCalibration(SiteTable):
    """Calibration of a method on held-out domains.

    Attributes
    ----------
    table : data frame
        A row for each domain (and class, if there are more than two), with 95 % intervals. For
        classes: rows, events, expected (the sum of probabilities), and observed divided by expected
        events (``oe``), the calibration ``intercept`` and ``slope``. For numbers: rows, ``bias``
        (mean of prediction minus target) and ``slope`` (of the target on the prediction).
    pooled : dict
        Each quantity pooled over domains (:class:`~domainwise.metrics.PooledScores`, or None if it
        is not defined for any domain). With more than two classes, a dictionary for each class.
    """


@dataclass(frozen=True)
class SiteDecisions(SiteTable):
    """What it is worth to treat the rows above a threshold, on held-out domains.

    Attributes
    ----------
    table : data frame
        A row for each domain: rows, events, and the scores of
        :func:`~domainwise.metrics.decision_scores` with 95 % intervals.
    pooled : dict
        Each score pooled over domains (:class:`~domainwise.metrics.PooledScores`, or None if it is
        not defined for any domain). Treating nobody has the net benefit 0.
    threshold : float
        Rows with at least this probability are treated.
    """

    threshold: float

    def to_dict(self) -> dict[str, Any]:
        """Return the threshold, the table and the pooled scores as JSON values.

        Returns
        -------
        values : dict
            ``threshold``, ``sites`` (a list of rows) and ``pooled``.
        """
        return {"threshold": self.threshold, **super().to_dict()}


def has_outputs(results: Results, method: MethodResult) -> bool:
    """Return whether a method's held-out predictions, or probabilities, are available."""
    name = "prediction" if results.classes is None else "probabilities"
    predictions = results.records.get(method.key, ())
    return bool(predictions) and all(getattr(p, name) is not None for p in predictions)


def outputs_of(results: Results, method: MethodResult) -> tuple[SourceOutputs, list[Label]]:
    """Return a method's held-out outputs and the domains; an error if there are none."""
    records = results.records_of(method)
    domains = [name for name in method.scores if name in records]
    outputs = held_out_outputs(records, domains, results.classes)
    if outputs is None:
        kind = "predictions" if results.classes is None else "probabilities"
        raise ValueError(
            f"{kind} of {method.label} for held-out rows are not available. Choose a method that "
            "predicts them, or evaluate again"
        )
    return outputs, domains


def site_rows(results: Results, method: MethodResult, code: int | None = 1) -> SiteRows:
    """Return a method's held-out outputs for a class, or for a continuous target (None)."""
    outputs, domains = outputs_of(results, method)
    y = outputs.y if code is None else outputs.y == code
    weights = np.ones(len(y)) if outputs.weights is None else outputs.weights
    columns = y, outputs.outputs[:, code or 0], outputs.domain_codes
    return SiteRows(*columns, domains, weights, LEVEL, POOLED_LEVEL)


def calibration_estimates(
    results: Results, method: MethodResult
) -> dict[Any, dict[str, SiteEstimates]]:
    """Calibration of a method by class (None for numbers), quantity and domain."""
    names = [None] if results.classes is None else results.classes.tolist()
    return {
        names[code or 0]: site_rows(results, method, code).calibration()
        for code in event_codes(results.classes)
    }


def site_calibration(results: Results, method: MethodResult) -> SiteCalibration:
    """Calibration of a method by domain and pooled."""
    by_class, rows = calibration_estimates(results, method), []
    for code, (name, estimates) in zip(event_codes(results.classes), by_class.items(), strict=True):
        all_rows = site_rows(results, method, code)
        for domain_code, domain in enumerate(all_rows.domains or ()):
            site = all_rows.site(all_rows.codes == domain_code)
            row: dict[str, Any] = {"domain": domain}
            row |= {"class": name} if len(by_class) > 1 else {}
            row["rows"] = site.n
            if code is not None:
                row |= {"events": site.n_events, "expected": float(np.sum(site.weights * site.p))}
            rows.append(row | estimate_columns(estimates, domain))
    pooled: dict[Any, Any] = {
        name: {quantity: estimate.pooled for quantity, estimate in estimates.items()}
        for name, estimates in by_class.items()
    }
    first_class, *other_classes = pooled.values()
    table = import_pandas().DataFrame(rows)
    return SiteCalibration(table, pooled if other_classes else first_class)


def estimate_columns(estimates: Mapping[str, SiteEstimates], domain: Label) -> dict[str, float]:
    """The value, and the ends of the interval, of each estimate for a domain."""
    columns: dict[str, float] = {}
    for name, by_site in estimates.items():
        estimate = by_site.sites[domain]
        low, high = estimate.interval
        columns |= {name: estimate.value, f"{name}_low": low, f"{name}_high": high}
    return columns


def event_estimates(
    results: Results, method: MethodResult, threshold: float | None
) -> dict[str, SiteEstimates]:
    """AUC of a method for two classes and, at a threshold, what a decision is worth."""
    rows = event_rows(results, method)
    decisions: Any = {} if threshold is None else rows.decisions(threshold)
    return {"auc": rows.by_site(auc_estimate, "logit"), **decisions}


def site_decisions(
    results: Results, method: MethodResult, threshold: float | None = None
) -> SiteDecisions:
    """What a method's predictions are worth at a threshold, by domain and pooled."""
    threshold = results.threshold if threshold is None else threshold
    if threshold is None:
        raise ValueError("no threshold was passed to evaluate(). Pass one, such as threshold=0.1")
    check_threshold(threshold)
    estimates = event_estimates(results, method, threshold)
    auc = estimates.pop("auc")
    rows = [
        {"domain": domain, "rows": estimate.n_rows, "events": estimate.n_events}
        | estimate_columns(estimates, domain)
        for domain, estimate in auc.sites.items()
    ]
    pooled = {name: estimate.pooled for name, estimate in estimates.items()}
    return SiteDecisions(import_pandas().DataFrame(rows), pooled, float(threshold))


def event_codes(classes: Array | None) -> list[int | None]:
    """Codes of the classes to describe: the last of two, or all; None for a continuous target."""
    if classes is None:
        return [None]
    return [1] if len(classes) == 2 else [*range(len(classes))]


def method_decision_curves(
    results: Results, method: MethodResult, thresholds: Any = None
) -> DecisionCurves:
    """Net benefit of a method for two classes, by domain and threshold."""
    grid = THRESHOLDS if thresholds is None else np.atleast_1d(np.asarray(thresholds, dtype=float))
    return decision_curves(event_rows(results, method), grid)


def event_rows(results: Results, method: MethodResult) -> SiteRows:
    """:func:`site_rows` for two classes."""
    require(results.classes is not None and len(results.classes) == 2, "two classes")
    return site_rows(results, method)


@dataclass(frozen=True)
class ValidationSize:
    """Number of rows needed to validate a model at a new site.

    Attributes
    ----------
    rows : int
        The largest of the numbers in ``criteria``.
    events : int or None
        Expected number of events (of the rarest class) among these rows; None for a continuous
        target.
    criteria : dict
        Number of rows needed for each criterion.
    """

    rows: int
    events: int | None
    criteria: Mapping[str, int]


def validation_size(
    results: Results, method: MethodResult, oe: float = 0.2, slope: float = 0.3, auc: float = 0.05
) -> ValidationSize:
    """Rows with which 95 % intervals at a new site are as narrow as required (theory 20)."""
    for name, value in (("oe", oe), ("slope", slope), ("auc", auc)):
        require(value > 0, "not positive", name=name, value=value)
    outputs, domains = outputs_of(results, method)
    z = float(ndtri((1 + LEVEL) / 2))
    masks = [outputs.domain_codes == code for code in range(len(domains))]
    weights = equal_weights(outputs.domain_codes, sample_weight=outputs.weights)
    if results.classes is None:
        predictions = outputs.outputs[:, 0]
        squares = (predictions - outputs.y) ** 2
        mean_square = float(weights @ squares)
        # The standard error of log RMSE is √(variance of squared errors / n) / (2 MSE).
        relative_variance = float(weights @ (squares - mean_square) ** 2) / mean_square**2
        variance = float(weights @ (predictions - weights @ predictions) ** 2)
        sizes = {
            "rmse": relative_variance / 4 * (z / np.log1p(oe)) ** 2,
            "slope": mean_square / variance * (z / slope) ** 2 if variance else np.inf,
        }
        return _validation_size(sizes, None)
    sizes, shares = {"oe": 0.0, "slope": 0.0, "auc": 0.0}, []
    for code in event_codes(results.classes):
        is_event, p = outputs.y == code, outputs.outputs[:, code]
        share = float(weights @ is_event)
        shares.append(share)
        predictors = logit(np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY))
        precision = weights * p * (1 - p)
        design = np.column_stack([np.ones(len(p)), predictors])
        information = (design * precision[:, None]).T @ design
        variance = np.inf
        if (determinant := float(np.linalg.det(information))) > 0:
            variance = float(information[0, 0]) / determinant
        by_site = [roc_auc(is_event[mask], p[mask], weights[mask]) for mask in masks]
        needed = {
            "oe": (1 - share) / share * (z / np.log1p(oe)) ** 2,
            "slope": variance * (z / slope) ** 2,
            "auc": auc_rows(float(np.nanmean(by_site)), share, auc / z),
        }
        sizes = {name: max(size, needed[name]) for name, size in sizes.items()}
    return _validation_size(sizes, min(shares))


def _validation_size(sizes: Mapping[str, float], share: float | None) -> ValidationSize:
    criteria = {name: int(np.ceil(n)) for name, n in sizes.items() if np.isfinite(n)}
    rows = max(criteria.values())
    return ValidationSize(rows, None if share is None else int(np.ceil(rows * share)), criteria)


def auc_rows(auc: float, share: float, error: float) -> float:
    """Return the number of rows for a standard error of an AUC (Newcombe), with a share of events.

    >>> int(np.ceil(auc_rows(0.8, 0.07, 0.05 / 1.96)))
    1156
    """

    def standard_error(n: float) -> float:
        half = n / 2 - 1
        factor = 1 + half * (1 - auc) / (2 - auc) + half * auc / (1 + auc)
        return float(np.sqrt(auc * (1 - auc) * factor / (n**2 * share * (1 - share))))

    low, high = 2.0, 4.0
    while standard_error(high) > error:
        high *= 2
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if standard_error(middle) <= error else (middle, high)
    return high
