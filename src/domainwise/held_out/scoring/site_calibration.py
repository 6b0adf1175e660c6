"""Calibration and net benefit of predicted probabilities, by site and pooled over sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from domainwise.base.arrays import Array, ArrayLike, Label, MaybeArray
from domainwise.base.inputs import check_same_length, checked_labels, encode_labels
from domainwise.held_out.scoring.pooling import (
    SCALES,
    Ends,
    PooledScores,
    auc_error,
    pool_transformed,
)
from domainwise.held_out.scoring.statistics import share_interval

#: Probabilities are moved at least this far away from 0 and 1, so that their logit is finite.
MIN_PROBABILITY = 1e-6
#: Minimum number of events, and of rows without event, for a calibration slope.
MIN_EVENTS = 5
#: Maximum number of iterations of Newton's method, and its tolerance.
MAX_STEPS, TOLERANCE = 100, 1e-12
NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    """A value with a confidence interval.

    Attributes
    ----------
    value : float
        NaN if it cannot be computed.
    interval : tuple of float
        Confidence interval.
    error : float
        Standard error, of the logarithm for ratios.
    n_rows, n_events : int
        Number of rows, and of those with the event.
    intercept : Estimate or None
        For a calibration slope, the intercept of a model with slope 1.
    treat_all : Estimate or None
        For a net benefit, that of treating all rows.
    """

    value: float
    interval: Ends
    error: float
    n_rows: int
    n_events: int
    intercept: Estimate | None = None
    treat_all: Estimate | None = None


@dataclass(frozen=True)
class SiteEstimates:
    """Values by site, pooled over sites.

    Attributes
    ----------
    sites : dict
        An :class:`Estimate` for each site.
    pooled : PooledScores or None
        The values of all sites, pooled by :func:`domainwise.metrics.pool_scores`. None if no site
        has a value.
    intercept, treat_all : SiteEstimates or None
        The same for the intercept of calibration slopes, and for the net benefit of treating all.
    """

    sites: dict[Label, Estimate]
    pooled: PooledScores | None
    intercept: SiteEstimates | None = None
    treat_all: SiteEstimates | None = None

    @property
    def value(self) -> float:
        """The pooled mean; NaN if no site has a value."""
        return NAN if self.pooled is None else self.pooled.mean

    @property
    def interval(self) -> Ends | None:
        """Confidence interval for the pooled mean; None with fewer than two sites."""
        return None if self.pooled is None else self.pooled.mean_interval


def observed_expected(
    y_true: ArrayLike,
    proba: ArrayLike,
    sample_domain: MaybeArray = None,
    *,
    pos_label: Label | None = None,
    level: float = 0.95,
) -> Estimate | SiteEstimates:
    r"""Observed divided by expected number of events (calibration in the large).

    The expected number is the sum of the probabilities. A ratio of 0.5 means that predicted
    probabilities are twice as high as the observed frequency. The standard error of the logarithm
    is :math:`\sqrt{(1 - \phi) / O}` for O events and their share :math:`\phi`. If there is no
    event, or if all rows have it, half an event is added or subtracted.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes: 0 and 1, False and True, or two other labels.
    proba : array-like of shape (n_samples,) or (n_samples, 2)
        Probability of the event, or the output of ``predict_proba``.
    sample_domain : array-like of shape (n_samples,), default=None
        The site of each row. None treats all rows as one site.
    pos_label : object, default=None
        The class that is the event. None means 1 or True, or the last of two sorted classes.
    level : float, default=0.95
        Probability of the intervals.

    Returns
    -------
    Estimate or SiteEstimates
        One value without ``sample_domain``. With it, a value for each site, and pooled on the
        logarithmic scale.

    See Also
    --------
    calibration_slope : Whether probabilities are too extreme.
    pool_scores : Pools values of sites.

    Examples
    --------
    >>> from domainwise.metrics import observed_expected
    >>> ratio = observed_expected([0, 0, 1, 1], [0.2, 0.2, 0.3, 0.3])
    >>> ratio.value, [round(end, 2) for end in ratio.interval]
    (2.0, [0.75, 5.33])
    """
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level)
    return rows.estimate(lambda y, p: ratio_estimate(y, p, level), "log", level)


def calibration_slope(
    y_true: ArrayLike,
    proba: ArrayLike,
    sample_domain: MaybeArray = None,
    *,
    pos_label: Label | None = None,
    level: float = 0.95,
) -> Estimate | SiteEstimates:
    r"""Slope of a logistic regression of the event on the logit of its probability.

    It is b in :math:`\operatorname{logit} P(y) = a + b \operatorname{logit} p`. The intercept is a
    in the same model with b = 1.

    A slope below 1 means that probabilities are too extreme. An intercept below 0 means that they
    are too high. Both are maximum likelihood estimates with Wald intervals.

    Parameters
    ----------
    y_true, proba, sample_domain, pos_label, level
        As in :func:`observed_expected`. Probabilities are moved at least 1e-6 away from 0 and 1.

    Returns
    -------
    Estimate or SiteEstimates
        The slope. Its attribute ``intercept`` contains the intercept. A site with fewer than five
        events, or fewer than five rows without event, has no slope (NaN).

    See Also
    --------
    observed_expected : Calibration in the large.
    domainwise.plots.CalibrationDisplay : Plots calibration by site.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.metrics import calibration_slope
    >>> p = np.repeat([0.1, 0.9], 50)
    >>> y = np.r_[np.arange(50) < 15, np.arange(50) < 35]  # 30 % and 70 % have the event
    >>> slope = calibration_slope(y, p)
    >>> round(slope.value, 3), round(slope.intercept.value, 3)
    (0.386, 0.0)
    """
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level)
    return rows.estimate(lambda y, p: slope_estimate(y, p, level), "identity", level)


def net_benefit(
    y_true: ArrayLike,
    proba: ArrayLike,
    threshold: float,
    sample_domain: MaybeArray = None,
    *,
    pos_label: Label | None = None,
    level: float = 0.95,
) -> Estimate | SiteEstimates:
    r"""Net benefit of treating the rows with a probability of at least a threshold.

    .. math:: \frac{TP}{n} - \frac{FP}{n} \cdot \frac{t}{1 - t}

    for the threshold t, true positives TP and false positives FP. Treating nobody has the net
    benefit 0.

    Parameters
    ----------
    y_true, proba, sample_domain, pos_label, level
        As in :func:`observed_expected`.
    threshold : float
        Probability above which a row is treated, between 0 and 1.

    Returns
    -------
    Estimate or SiteEstimates
        The net benefit, pooled without transformation. Its attribute ``treat_all`` contains the net
        benefit of treating all rows.

    See Also
    --------
    domainwise.plots.DecisionCurveDisplay : Plots the net benefit for many thresholds.

    References
    ----------
    A. J. Vickers and E. B. Elkin (2006), "Decision curve analysis: a novel method for evaluating
    prediction models", Medical Decision Making 26.

    Examples
    --------
    >>> from domainwise.metrics import net_benefit
    >>> benefit = net_benefit([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9], 0.5)  # 1 / 4 - 1 / 4
    >>> benefit.value, benefit.treat_all.value
    (0.0, 0.0)
    """
    check_threshold(threshold)
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level)
    return rows.estimate(lambda y, p: benefit_estimate(y, p, threshold, level), "identity", level)


#: What is estimated for a threshold, and the scale on which the sites are pooled.
DECISION_SCALES = {
    **dict.fromkeys(("sensitivity", "specificity", "ppv", "npv"), "logit"),
    **dict.fromkeys(("net_benefit", "treat_all"), "identity"),
}


def decision_scores(
    y_true: ArrayLike,
    proba: ArrayLike,
    threshold: float,
    sample_domain: MaybeArray = None,
    *,
    pos_label: Label | None = None,
    level: float = 0.95,
) -> dict[str, Estimate | SiteEstimates]:
    """Sensitivity, specificity, predictive values and net benefit of treating at a threshold.

    A row is treated if its probability is at least the threshold.

    Parameters
    ----------
    y_true, proba, threshold, sample_domain, pos_label, level
        As in :func:`net_benefit`.

    Returns
    -------
    scores : dict
        ``sensitivity`` (share of the events that are treated), ``specificity`` (share of the other
        rows that are not treated), ``ppv`` (share of events among the treated), ``npv`` (share of
        other rows among those not treated), ``net_benefit``, and ``treat_all``, the net benefit of
        treating all rows; treating nobody has the net benefit 0. Shares have exact intervals
        (Clopper and Pearson), are pooled on the logit scale, and are NaN if no row counts.

    See Also
    --------
    net_benefit : The definition of the net benefit.

    Examples
    --------
    >>> from domainwise.metrics import decision_scores
    >>> scores = decision_scores([0, 0, 0, 1, 1], [0.1, 0.2, 0.6, 0.4, 0.9], 0.3)
    >>> [round(scores[name].value, 2) for name in ("sensitivity", "specificity", "ppv", "npv")]
    [1.0, 0.67, 0.67, 1.0]
    >>> round(scores["net_benefit"].value, 2), round(scores["treat_all"].value, 2)
    (0.31, 0.14)
    """
    check_threshold(threshold)
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level)
    return rows.decisions(threshold, level)


def check_threshold(threshold: float) -> None:
    """Raise an error unless the threshold is between 0 and 1."""
    if not 0 < threshold < 1:
        raise ValueError(f"threshold must be between 0 and 1, such as 0.1; got {threshold!r}.")


class SiteRows(NamedTuple):
    """Checked rows: whether each has the event, its probability, and its site."""

    y: Array
    p: Array
    codes: Array
    domains: list[Label] | None

    @classmethod
    def check(
        cls, y_true: Any, proba: Any, sample_domain: Any, pos_label: Any, level: float
    ) -> SiteRows:
        """Check the arguments of :func:`observed_expected`."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, such as 0.95; got {level!r}.")
        y = events_of(checked_labels(y_true, "y_true"), pos_label)
        p = np.asarray(proba, dtype=np.float64)
        p = p[:, 1] if p.ndim == 2 and p.shape[1] == 2 else p
        if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
            raise ValueError(
                "proba must contain a probability between 0 and 1 for each row, or the two columns "
                "of predict_proba. For several classes, pass one class at a time."
            )
        check_same_length(p, "proba", y, "y_true")
        if sample_domain is None:
            return cls(y, p, np.zeros(len(y), dtype=int), None)
        codes, domains = encode_labels(sample_domain, "sample_domain")
        check_same_length(codes, "sample_domain", y, "y_true")
        return cls(y, p, codes, domains.tolist())

    def estimate(
        self, estimate: Callable[[Array, Array], Estimate], scale: str, level: float
    ) -> Estimate | SiteEstimates:
        """Compute an estimate for all rows, or for each site."""
        if self.domains is None:
            return estimate(self.y, self.p)
        masks = [self.codes == code for code in range(len(self.domains))]
        estimates = [estimate(self.y[mask], self.p[mask]) for mask in masks]
        return pooled_estimates(dict(zip(self.domains, estimates, strict=True)), scale, level)

    def decisions(
        self, threshold: float, level: float, pooled_level: float | None = None
    ) -> dict[str, Estimate | SiteEstimates]:
        """Estimate what treating at a threshold is worth; see :func:`decision_scores`."""

        def score(name: str, y: Array, p: Array) -> Estimate:
            return decision_estimates(y, p, threshold, level)[name]

        return {
            name: self.estimate(partial(score, name), scale, pooled_level or level)
            for name, scale in DECISION_SCALES.items()
        }


def events_of(labels: Array, pos_label: Any = None) -> Array:
    """Return whether each row has the event, which is ``pos_label`` or the last of two classes."""
    classes = np.unique(labels).tolist()
    if pos_label is None:
        if set(classes) <= {0, 1}:
            pos_label = 1
        elif len(classes) == 2:
            pos_label = classes[1]
        else:
            raise ValueError(
                f"y_true must contain two classes; got {len(classes)}. Pass the class that is the "
                "event as pos_label."
            )
    return np.asarray(labels == pos_label)


def pooled_estimates(sites: dict[Label, Estimate], scale: str, level: float) -> SiteEstimates:
    """Pool the estimates of sites; ratios are pooled on the logarithmic scale."""

    def pool(estimates: Sequence[Estimate], scale: str) -> PooledScores | None:
        values = np.array([estimate.value for estimate in estimates])
        errors = np.array([estimate.error for estimate in estimates])
        if scale == "logit":  # shares of 0 and 1 are moved by half a row
            half = 0.5 / np.maximum([estimate.n_rows for estimate in estimates], 1)
            values = np.clip(values, half, 1 - half)
        if not (np.isfinite(values) & np.isfinite(errors) & (errors > 0)).any():
            return None
        return pool_transformed(SCALES[scale].forward(values), errors, scale, level)

    def pool_related(name: str) -> SiteEstimates | None:
        related = {domain: getattr(estimate, name) for domain, estimate in sites.items()}
        if None in related.values():
            return None
        return SiteEstimates(related, pool(list(related.values()), "identity"))

    related = {name: pool_related(name) for name in ("intercept", "treat_all")}
    return SiteEstimates(sites, pool(list(sites.values()), scale), **related)


def class_estimates(
    y: Array, p: Array, codes: Array, domains: Sequence[Label], *, level: float, pooled_level: float
) -> dict[str, SiteEstimates]:
    """O/E ("oe"), calibration intercept and slope by site, and pooled; ``codes`` name the sites."""
    estimates: dict[str, dict[Label, Estimate]] = {"oe": {}, "intercept": {}, "slope": {}}
    for code, domain in enumerate(domains):
        rows = codes == code
        slope = slope_estimate(y[rows], p[rows], level)
        assert slope.intercept is not None
        estimates["oe"][domain] = ratio_estimate(y[rows], p[rows], level)
        estimates["intercept"][domain], estimates["slope"][domain] = slope.intercept, slope
    return {
        name: pooled_estimates(sites, "log" if name == "oe" else "identity", pooled_level)
        for name, sites in estimates.items()
    }


def _wald(value: float, error: float, level: float, y: Array, **related: Any) -> Estimate:
    radius = float(ndtri((1 + level) / 2)) * error
    n, n_events = len(y), int(y.sum())
    return Estimate(value, (value - radius, value + radius), error, n, n_events, **related)


def ratio_estimate(y: Array, p: Array, level: float) -> Estimate:
    """Observed divided by expected events of one site."""
    n, n_events = len(y), int(y.sum())
    observed = min(max(float(n_events), 0.5), n - 0.5)
    if p.sum() == 0:
        return Estimate(NAN, (NAN, NAN), NAN, n, n_events)
    log_ratio, error = np.log(observed / p.sum()), np.sqrt((1 - observed / n) / observed)
    radius = ndtri((1 + level) / 2) * error
    ends = float(np.exp(log_ratio - radius)), float(np.exp(log_ratio + radius))
    return Estimate(float(np.exp(log_ratio)), ends, float(error), n, n_events)


def slope_estimate(y: Array, p: Array, level: float) -> Estimate:
    """Calibration slope of one site, and the intercept with slope 1."""
    predictors = logit(np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY))
    n, n_events = len(y), int(y.sum())
    value, error = NAN, NAN
    if min(n_events, n - n_events) >= MIN_EVENTS and np.ptp(predictors) > 0:
        design = np.column_stack([np.ones(n), predictors])
        parameters, errors = logistic_fit(design, y, np.zeros(n))
        value, error = float(parameters[1]), float(errors[1])
    intercept, intercept_error = NAN, NAN
    if 0 < n_events < n:
        parameters, errors = logistic_fit(np.ones((n, 1)), y, predictors)
        intercept, intercept_error = float(parameters[0]), float(errors[0])
    return _wald(value, error, level, y, intercept=_wald(intercept, intercept_error, level, y))


def logistic_fit(design: Array, y: Array, offset: Array) -> tuple[Array, Array]:
    """Return maximum likelihood parameters and their standard errors; NaN if they are infinite."""
    parameters = np.zeros(design.shape[1])
    step, log_likelihood = parameters, -np.inf
    for _ in range(MAX_STEPS):
        size = 1.0
        while True:  # halve the step until the likelihood does not decrease
            trial = parameters + size * step
            outputs = offset + design @ trial
            trial_likelihood = float(np.sum(y * outputs - np.logaddexp(0.0, outputs)))
            if trial_likelihood >= log_likelihood - TOLERANCE * len(y) or size < 1e-6:
                break
            size /= 2
        parameters, log_likelihood = trial, trial_likelihood
        p = expit(outputs)
        information = (design * (p * (1 - p))[:, None]).T @ design
        if np.linalg.cond(information) > 1 / TOLERANCE:  # the classes are separated
            break
        step = np.linalg.solve(information, design.T @ (y - p))
        if np.abs(step).max() < TOLERANCE * (1 + np.abs(parameters).max()):
            return parameters + step, np.sqrt(np.diag(np.linalg.inv(information)))
    return np.full(len(parameters), NAN), np.full(len(parameters), NAN)


def share_estimate(is_hit: Array, level: float) -> Estimate:
    """Share of hits, with an exact interval and the standard error of its logit."""
    n, n_hits = len(is_hit), int(is_hit.sum())
    if not n:
        return Estimate(NAN, (NAN, NAN), NAN, 0, 0)
    moved = min(max(n_hits, 0.5), n - 0.5)
    error = float(np.sqrt(1 / moved + 1 / (n - moved)))
    return Estimate(n_hits / n, share_interval(n_hits, n, (1 - level) / 2), error, n, n_hits)


def auc_estimate(y: Array, p: Array, level: float) -> Estimate:
    """Area under the ROC curve, with an interval and a standard error on the logit scale."""
    value, error = auc_error(y, p)
    ends, error = (NAN, NAN), error / (value * (1 - value)) if 0 < value < 1 else NAN
    if np.isfinite(error):
        ends = SCALES["logit"].interval(float(logit(value)), ndtri((1 + level) / 2) * error)
    return Estimate(value, ends, error, len(y), int(y.sum()))


def decision_estimates(y: Array, p: Array, threshold: float, level: float) -> dict[str, Estimate]:
    """Scores of one site, by the names in ``DECISION_SCALES``."""
    is_treated, benefit = p >= threshold, benefit_estimate(y, p, threshold, level)
    assert benefit.treat_all is not None
    return {
        "sensitivity": share_estimate(is_treated[y], level),
        "specificity": share_estimate(~is_treated[~y], level),
        "ppv": share_estimate(y[is_treated], level),
        "npv": share_estimate(~y[~is_treated], level),
        "net_benefit": benefit,
        "treat_all": benefit.treat_all,
    }


def benefit_estimate(y: Array, p: Array, threshold: float, level: float) -> Estimate:
    """Net benefit of one site, and that of treating all rows."""
    odds, n = threshold / (1 - threshold), len(y)

    def mean(terms: Array, **related: Any) -> Estimate:
        deviations = np.sum((terms - terms.mean()) ** 2)
        if deviations == 0:  # all rows are alike: add half a row of each kind
            deviations = 0.5 * (1 + odds**2)
        error = float(np.sqrt(deviations / max(n - 1, 1) / n))
        return _wald(float(terms.mean()), error, level, y, **related)

    gains = np.where(y, 1.0, -odds)
    return mean(np.where(p >= threshold, gains, 0.0), treat_all=mean(gains))


def number_estimates(
    y: Array,
    predictions: Array,
    codes: Array,
    domains: Sequence[Label],
    *,
    level: float,
    pooled_level: float,
) -> dict[str, SiteEstimates]:
    """Bias, and slope of observed on predicted numbers, by site and pooled."""
    by_site = [
        numeric_estimates(y[codes == code], predictions[codes == code], level)
        for code in range(len(domains))
    ]
    return {
        name: pooled_estimates(
            {d: e[name] for d, e in zip(domains, by_site, strict=True)}, "identity", pooled_level
        )
        for name in ("bias", "slope")
    }


def numeric_estimates(y: Array, predictions: Array, level: float) -> dict[str, Estimate]:
    """Bias (mean of prediction minus target) and slope of observed on predicted, of one site."""
    errors, n = predictions - y, len(y)
    bias = slope = _wald(NAN, NAN, level, np.zeros(n))
    if n > 2:
        bias_error = float(errors.std(ddof=1) / np.sqrt(n))
        bias = _wald(float(errors.mean()), bias_error, level, np.zeros(n))
        centred = predictions - predictions.mean()
        if (total := float(centred @ centred)) > 0:
            value = float(centred @ y) / total
            residuals = y - y.mean() - value * centred
            error = float(np.sqrt(residuals @ residuals / (n - 2) / total))
            slope = _wald(value, error, level, np.zeros(n))
    return {"bias": bias, "slope": slope}


@dataclass(frozen=True)
class DecisionCurves:
    """Net benefit by threshold, for each site and on average.

    Attributes
    ----------
    thresholds : ndarray of shape (n_thresholds,)
    sites : dict of ndarray
        Net benefit of each site.
    treat_all : dict of ndarray
        Net benefit of treating all rows, for each site.
    mean, mean_treat_all : ndarray of shape (n_thresholds,)
        Means over sites, with equal weights.
    """

    thresholds: Array
    sites: dict[Label, Array]
    treat_all: dict[Label, Array]

    @property
    def mean(self) -> Array:
        """Mean net benefit over sites."""
        return np.asarray(np.mean(list(self.sites.values()), axis=0))

    @property
    def mean_treat_all(self) -> Array:
        """Mean net benefit of treating all rows, over sites."""
        return np.asarray(np.mean(list(self.treat_all.values()), axis=0))


def decision_curves(
    y: Array, p: Array, codes: Array, domains: Sequence[Label], thresholds: Array
) -> DecisionCurves:
    """Return the net benefit of each site for all thresholds."""
    for threshold in thresholds:
        check_threshold(threshold)
    odds, sites, treat_all = thresholds / (1 - thresholds), {}, {}
    for code, domain in enumerate(domains):
        y_site, p_site = y[codes == code], p[codes == code]
        event_p, other_p = np.sort(p_site[y_site]), np.sort(p_site[~y_site])
        n_true = len(event_p) - np.searchsorted(event_p, thresholds, side="left")
        n_false = len(other_p) - np.searchsorted(other_p, thresholds, side="left")
        sites[domain] = (n_true - n_false * odds) / len(y_site)
        treat_all[domain] = (len(event_p) - len(other_p) * odds) / len(y_site)
    return DecisionCurves(thresholds, sites, treat_all)
