"""Calibration and net benefit of predicted probabilities, by site and pooled over sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit, ndtri

from domainwise.base import inputs
from domainwise.base.arrays import Array, ArrayLike, Label, MaybeArray
from domainwise.held_out.scoring import pooling
from domainwise.held_out.scoring.pooling import SCALES, Ends, PooledScores
from domainwise.held_out.scoring.statistics import logistic_fit, mean_error, share_interval

#: Probabilities are moved at least this far away from 0 and 1, so that their logit is finite.
MIN_PROBABILITY = 1e-6
#: Minimum number of events, and of rows without event, for a calibration slope.
MIN_EVENTS = 5
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
    n_rows, n_events : float
        Number of rows, and of those with the event; with weights, the sums of their weights.
    intercept : Estimate or None
        For a calibration slope, the intercept of a model with slope 1.
    treat_all : Estimate or None
        For a net benefit, that of treating all rows.
    """

    value: float
    interval: Ends
    error: float
    n_rows: float
    n_events: float
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
    sample_weight: MaybeArray = None,
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
    sample_weight : array-like of shape (n_samples,), default=None
        How often each row counts: a weight of 2 means that the row occurs twice.

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
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level, sample_weight)
    return rows.estimate(ratio_estimate, "log")


def calibration_slope(
    y_true: ArrayLike,
    proba: ArrayLike,
    sample_domain: MaybeArray = None,
    *,
    pos_label: Label | None = None,
    level: float = 0.95,
    sample_weight: MaybeArray = None,
) -> Estimate | SiteEstimates:
    r"""Slope of a logistic regression of the event on the logit of its probability.

    It is b in :math:`\operatorname{logit} P(y) = a + b \operatorname{logit} p`. The intercept is a
    in the same model with b = 1.

    A slope below 1 means that probabilities are too extreme. An intercept below 0 means that they
    are too high. Both are maximum likelihood estimates with Wald intervals.

    Parameters
    ----------
    y_true, proba, sample_domain, pos_label, level, sample_weight
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
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level, sample_weight)
    return rows.estimate(slope_estimate)


def net_benefit(
    y_true: ArrayLike,
    proba: ArrayLike,
    threshold: float,
    sample_domain: MaybeArray = None,
    *,
    pos_label: Label | None = None,
    level: float = 0.95,
    sample_weight: MaybeArray = None,
) -> Estimate | SiteEstimates:
    r"""Net benefit of treating the rows with a probability of at least a threshold.

    .. math:: \frac{TP}{n} - \frac{FP}{n} \cdot \frac{t}{1 - t}

    for the threshold t, true positives TP and false positives FP. Treating nobody has the net
    benefit 0.

    Parameters
    ----------
    y_true, proba, sample_domain, pos_label, level, sample_weight
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
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level, sample_weight)
    return rows.estimate(partial(benefit_estimate, threshold=threshold))


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
    sample_weight: MaybeArray = None,
) -> dict[str, Estimate | SiteEstimates]:
    """Sensitivity, specificity, predictive values and net benefit of treating at a threshold.

    A row is treated if its probability is at least the threshold.

    Parameters
    ----------
    y_true, proba, threshold, sample_domain, pos_label, level, sample_weight
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
    rows = SiteRows.check(y_true, proba, sample_domain, pos_label, level, sample_weight)
    return rows.decisions(threshold)


def check_threshold(threshold: float) -> None:
    """Raise an error unless the threshold is between 0 and 1."""
    if not 0 < threshold < 1:
        raise ValueError(f"threshold must be between 0 and 1, such as 0.1; got {threshold!r}.")


class Site(NamedTuple):
    """The rows of one site."""

    y: Array  #: whether each row has the event, or its target
    p: Array  #: probability of the event, or predicted target
    weights: Array
    level: float  #: probability of intervals

    @property
    def n(self) -> float:
        """Sum of the weights; an int if it is whole."""
        return _count(self.weights.sum())

    @property
    def n_events(self) -> float:
        """Sum of the weights of events; 0 if the target is continuous."""
        return _count(self.weights[self.y].sum()) if self.y.dtype == bool else 0

    def wald(self, value: float, error: float, **related: Any) -> Estimate:
        """Return an estimate with a normal interval."""
        radius = float(ndtri((1 + self.level) / 2)) * error
        ends = value - radius, value + radius
        return Estimate(value, ends, error, self.n, self.n_events, **related)


def _count(total: float) -> float:
    return int(total) if total == int(total) else float(total)


class SiteRows(NamedTuple):
    """Checked rows: whether each has the event, its probability, its site and its weight.

    For a continuous target, these are targets and predictions.
    """

    y: Array
    p: Array
    codes: Array
    domains: Sequence[Label] | None
    weights: Array
    level: float = 0.95  #: probability of the intervals of sites
    pooled_level: float = 0.95

    @classmethod
    def check(
        cls,
        y_true: Any,
        proba: Any,
        sample_domain: Any,
        pos_label: Any,
        level: float,
        sample_weight: Any = None,
    ) -> SiteRows:
        """Check the arguments of :func:`observed_expected`."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, such as 0.95; got {level!r}.")
        y = events_of(inputs.checked_labels(y_true, "y_true"), pos_label)
        p = inputs.real_numbers(proba, "proba")
        p = p[:, 1] if p.ndim == 2 and p.shape[1] == 2 else p
        if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
            raise ValueError(
                "proba must contain a probability between 0 and 1 for each row, or the two columns "
                "of predict_proba. For several classes, pass one class at a time."
            )
        inputs.check_same_length(p, "proba", y, "y_true")
        codes, domains = np.zeros(len(y), dtype=int), None
        if sample_domain is not None:
            codes, names = inputs.encode_labels(sample_domain, "sample_domain")
            inputs.check_same_length(codes, "sample_domain", y, "y_true")
            domains = names.tolist()
        weights = inputs.check_sample_weight(sample_weight, len(y))
        weights = np.ones(len(y)) if weights is None else weights
        return cls(y, p, codes, domains, weights, level, level)

    def site(self, rows: Any) -> Site:
        """Return some of the rows, as those of one site."""
        rows = rows & (self.weights > 0)
        return Site(self.y[rows], self.p[rows], self.weights[rows], self.level)

    def estimate(
        self, estimate: Callable[[Site], Estimate], scale: str = "identity"
    ) -> Estimate | SiteEstimates:
        """Compute an estimate for all rows, or for each site, pooled on a scale."""
        if self.domains is None:
            return estimate(self.site(np.ones(len(self.y), dtype=bool)))
        return self.by_site(estimate, scale)

    def by_site(
        self, estimate: Callable[[Site], Estimate], scale: str = "identity"
    ) -> SiteEstimates:
        """Compute an estimate for each site, and pool them on a scale."""
        names = enumerate(self.domains or ())
        sites = {domain: estimate(self.site(self.codes == code)) for code, domain in names}
        return pooled_estimates(sites, scale, self.pooled_level)

    def calibration(self) -> dict[str, SiteEstimates]:
        """O/E ("oe"), calibration intercept and slope; for numbers, bias and slope."""
        if self.y.dtype != bool:
            return {"bias": self.by_site(bias_estimate), "slope": self.by_site(number_slope)}
        slope = self.by_site(slope_estimate)
        assert slope.intercept is not None
        oe = self.by_site(ratio_estimate, "log")
        return {"oe": oe, "intercept": slope.intercept, "slope": slope}

    def decisions(self, threshold: float) -> dict[str, Estimate | SiteEstimates]:
        """Estimate what treating at a threshold is worth; see :func:`decision_scores`."""

        def score(name: str, site: Site) -> Estimate:
            return decision_estimates(site, threshold)[name]

        return {
            name: self.estimate(partial(score, name), scale)
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
        return pooling.pool_transformed(SCALES[scale].forward(values), errors, scale, level)

    def pool_related(name: str) -> SiteEstimates | None:
        related = {domain: getattr(estimate, name) for domain, estimate in sites.items()}
        if None in related.values():
            return None
        return SiteEstimates(related, pool(list(related.values()), "identity"))

    related = {name: pool_related(name) for name in ("intercept", "treat_all")}
    return SiteEstimates(sites, pool(list(sites.values()), scale), **related)


def ratio_estimate(site: Site) -> Estimate:
    """Observed divided by expected events of one site."""
    n, n_events, expected = site.n, site.n_events, float(np.sum(site.weights * site.p))
    observed = min(max(n_events, 0.5), n - 0.5)
    if expected == 0:
        return Estimate(NAN, (NAN, NAN), NAN, n, n_events)
    ratio, error = observed / expected, float(np.sqrt((1 - observed / n) / observed))
    ends = SCALES["log"].interval(np.log(ratio), ndtri((1 + site.level) / 2) * error)
    return Estimate(ratio, ends, error, n, n_events)


def slope_estimate(site: Site) -> Estimate:
    """Calibration slope of one site, and the intercept with slope 1."""
    predictors = logit(np.clip(site.p, MIN_PROBABILITY, 1 - MIN_PROBABILITY))
    n, n_events, constant = site.n, site.n_events, np.ones((len(site.y), 1))
    slope = intercept = NAN, NAN
    if min(n_events, n - n_events) >= MIN_EVENTS and np.ptp(predictors) > 0:
        design = np.column_stack([constant, predictors])
        slope = logistic_fit(design, site.y, 0.0 * predictors, site.weights)
    if 0 < n_events < n:
        intercept = logistic_fit(constant, site.y, predictors, site.weights)
    return site.wald(*slope, intercept=site.wald(*intercept))


def share_estimate(is_hit: Array, weights: Array, level: float) -> Estimate:
    """Share of hits, with an exact interval and the standard error of its logit."""
    n, n_hits = _count(weights.sum()), _count(weights[is_hit].sum())
    if not n:
        return Estimate(NAN, (NAN, NAN), NAN, 0, 0)
    moved = min(max(n_hits, 0.5), n - 0.5)
    error = float(np.sqrt(1 / moved + 1 / (n - moved)))
    return Estimate(n_hits / n, share_interval(n_hits, n, (1 - level) / 2), error, n, n_hits)


def auc_estimate(site: Site) -> Estimate:
    """Area under the ROC curve, with an interval and a standard error on the logit scale."""
    value, error = pooling.auc_error(site.y, site.p, site.weights)
    ends, error = (NAN, NAN), error / (value * (1 - value)) if 0 < value < 1 else NAN
    if np.isfinite(error):
        radius = ndtri((1 + site.level) / 2) * error
        ends = SCALES["logit"].interval(float(logit(value)), radius)
    return Estimate(value, ends, error, site.n, site.n_events)


def decision_estimates(site: Site, threshold: float) -> dict[str, Estimate]:
    """Scores of one site, by the names in ``DECISION_SCALES``."""
    y, is_treated, benefit = site.y, site.p >= threshold, benefit_estimate(site, threshold)
    assert benefit.treat_all is not None
    hits = {  # which of the rows that count are hits
        "sensitivity": (is_treated, y),
        "specificity": (~is_treated, ~y),
        "ppv": (y, is_treated),
        "npv": (~y, ~is_treated),
    }
    shares = {
        name: share_estimate(is_hit[rows], site.weights[rows], site.level)
        for name, (is_hit, rows) in hits.items()
    }
    return {**shares, "net_benefit": benefit, "treat_all": benefit.treat_all}


def benefit_estimate(site: Site, threshold: float) -> Estimate:
    """Net benefit of one site, and that of treating all rows."""
    odds, n = threshold / (1 - threshold), site.n

    def mean(terms: Array, **related: Any) -> Estimate:
        value, error = mean_error(terms, site.weights)
        if not error > 0:  # all rows are alike: add half a row of each kind
            error = float(np.sqrt(0.5 * (1 + odds**2) / max(n - 1, 1) / n))
        return site.wald(value, error, **related)

    gains = np.where(site.y, 1.0, -odds)
    return mean(np.where(site.p >= threshold, gains, 0.0), treat_all=mean(gains))


def bias_estimate(site: Site) -> Estimate:
    """Mean of prediction minus target, of one site."""
    return site.wald(*(mean_error(site.p - site.y, site.weights) if site.n > 2 else (NAN, NAN)))


def number_slope(site: Site) -> Estimate:
    """Slope of observed on predicted numbers, of one site."""
    y, p = (v - np.average(v, weights=site.weights) for v in (site.y, site.p))
    total = float(site.weights @ p**2)
    if not (site.n > 2 and total > 0):
        return site.wald(NAN, NAN)
    slope = float(site.weights @ (p * y)) / total
    variance = float(site.weights @ (y - slope * p) ** 2) / (site.n - 2)
    return site.wald(slope, float(np.sqrt(variance / total)))


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


def decision_curves(rows: SiteRows, thresholds: Array) -> DecisionCurves:
    """Return the net benefit of each site for all thresholds."""
    for threshold in thresholds:
        check_threshold(threshold)
    odds, sites, treat_all = thresholds / (1 - thresholds), {}, {}
    for code, domain in enumerate(rows.domains or ()):
        site = rows.site(rows.codes == code)

        def treated(mask: Array, site: Site = site) -> Array:
            """Sum of the weights of the rows that are treated at each threshold."""
            order = np.argsort(site.p[mask])
            sums = np.append(np.cumsum(site.weights[mask][order][::-1])[::-1], 0.0)
            return sums[np.searchsorted(site.p[mask][order], thresholds, side="left")]

        sites[domain] = (treated(site.y) - treated(~site.y) * odds) / site.n
        treat_all[domain] = (site.n_events - (site.n - site.n_events) * odds) / site.n
    return DecisionCurves(thresholds, sites, treat_all)
