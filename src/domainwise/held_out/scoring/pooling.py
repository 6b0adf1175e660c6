"""Random-effects meta-analysis of scores: what differs between sites, and what is chance.

Each site contributes a score and its standard error. All computations are on a transformed scale,
such as the logit of a proportion, and results are transformed back (theory 20). The end of the
module computes the standard errors of scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, chdtri, expit, logit, ndtri, stdtrit

from domainwise.base.arrays import Array, ArrayLike
from domainwise.base.inputs import check_same_length, real_numbers
from domainwise.held_out.scoring.measures import Measure
from domainwise.held_out.scoring.predictions import Outputs, shares_below
from domainwise.held_out.scoring.statistics import defined_score, mean_error

#: Minimum number of sites for a range for a new site.
MIN_SITES = 4
#: Sites differ if this interval for the standard deviation between sites lies above 0.
DIFFERENCE_LEVEL = 0.9
#: Points of the mixture distribution of the true score at a new site.
N_POINTS = 4096
#: Multiples of these numbers, modulo 1, are evenly spread in the unit cube (Kronecker sequence).
GOLDEN = 1.2207440846057596 ** -np.arange(1.0, 4.0)

Ends = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """A transformation of scores, such as the logit, after which they are about normal."""

    forward: Callable[[Array], Array]
    backward: Callable[[Any], Any]
    slope: Callable[[Array], Array]  #: derivative of ``forward``
    limits: Ends = (-np.inf, np.inf)  #: smallest and largest score

    def interval(self, center: float, radius: float) -> Ends:
        """Return the scores at two transformed values, the smaller one first."""
        low, high = sorted(float(self.backward(center + sign * radius)) for sign in (-1, 1))
        return low, high

    def confidence(self, score: float, error: float, level: float = 0.95) -> Ends:
        """Return a confidence interval for a score with this standard error; NaN if undefined."""
        with np.errstate(divide="ignore", invalid="ignore"):
            center, slope = (f(np.asarray(score, np.float64)) for f in (self.forward, self.slope))
            radius = float(ndtri((1 + level) / 2) * error * slope)
        if not np.isfinite(center) or not np.isfinite(radius):
            return float("nan"), float("nan")
        return self.interval(float(center), radius)


def _one(scores: Array) -> Array:
    return np.ones_like(scores)


SCALES = {
    "identity": Scale(np.array, float, _one),
    "logit": Scale(logit, expit, lambda p: 1.0 / (p * (1.0 - p)), (0.0, 1.0)),
    "log": Scale(np.log, np.exp, lambda scores: 1.0 / scores, (0.0, np.inf)),
    # For R²: log(1 - R²) is the logarithm of a relative squared error.
    "log1m": Scale(
        lambda scores: np.log(1.0 - scores),
        lambda values: 1.0 - np.exp(values),
        lambda scores: 1.0 / (1.0 - scores),
        (-np.inf, 1.0),
    ),
}


@dataclass(frozen=True)
class PooledScores:
    """Scores pooled over sites; the result of :func:`pool_scores`.

    Attributes
    ----------
    mean : float
        Pooled mean over sites, transformed back to a score.
    mean_interval : tuple of float or None
        Confidence interval for the mean (Hartung, Knapp, Sidik and Jonkman). None for one site.
    tau : float or None
        Standard deviation of the true scores between sites (REML), on the transformed scale. None
        for one site.
    tau_interval : tuple of float or None
        Q-profile confidence interval for ``tau``. None for one site.
    i2 : float or None
        Share of the variance between observed scores that is not due to chance. None for one site.
    differ : bool or None
        Whether the sites differ: the lower end of the 90 % Q-profile interval is above 0, whatever
        ``level`` is. False means that there is no evidence of a difference, not that there is none.
        None for one site.
    true_range : tuple of float or None
        Prediction interval for the true score at a new site, which takes the uncertainty of ``tau``
        into account. None for fewer than four sites.
    plug_in_range : tuple of float or None
        The same, as if ``tau`` were known; R's metafor and metamisc report this interval. It is too
        narrow if ``tau`` is small but not 0. None for fewer than four sites.
    n_sites : int
        Number of sites with a score and a standard error.
    n_left_out : int
        Number of other sites, which are ignored.
    level : float
        Probability of the intervals.
    scale : str
        The transformed scale.
    """

    mean: float
    mean_interval: Ends | None
    tau: float | None
    tau_interval: Ends | None
    i2: float | None
    differ: bool | None
    true_range: Ends | None
    plug_in_range: Ends | None
    n_sites: int
    n_left_out: int
    level: float
    scale: str
    _center: float = field(repr=False)  #: transformed mean
    _spread: float = field(repr=False)  #: √(τ² + se²)

    def measured_range(self, error: float) -> Ends | None:
        """Return a prediction interval for the score that is measured at a new site.

        Parameters
        ----------
        error : float
            Standard error of the score at the new site, which depends on its number of rows. It
            refers to a score equal to ``mean``, and is transformed as in :func:`pool_scores`.

        Returns
        -------
        ends : tuple of float, or None
            It is at least as wide as ``plug_in_range``, and None for fewer than four sites.
        """
        if not error >= 0:
            raise ValueError(f"error must be at least 0; got {error!r}.")
        if self.n_sites < MIN_SITES:
            return None
        scale, tail = SCALES[self.scale], (1 + self.level) / 2
        transformed_error = error * float(scale.slope(np.array(self.mean)))
        radius = np.hypot(
            stdtrit(self.n_sites - 2, tail) * self._spread, ndtri(tail) * transformed_error
        )
        return scale.interval(self._center, float(radius))

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as numbers, tuples and strings, which can be written as JSON.

        Returns
        -------
        values : dict
            Attributes by name.
        """
        return {name: value for name, value in vars(self).items() if name[0] != "_"}


def pool_scores(
    scores: ArrayLike, errors: ArrayLike, *, scale: str = "identity", level: float = 0.9
) -> PooledScores:
    r"""Pool the scores of several sites with a random-effects meta-analysis.

    The observed score of site j is :math:`y_j = \mu + u_j + e_j`, where
    :math:`u_j \sim N(0, \tau^2)` is the difference between sites and
    :math:`e_j \sim N(0, s_j^2)` is chance. This is the analysis of an internal-external
    cross-validation.

    Parameters
    ----------
    scores : array-like of shape (n_sites,)
        Score of each site, such as its AUC or its RMSE (with a positive sign).
    errors : array-like of shape (n_sites,)
        Standard error of each score, in the same unit as the score: an AUC of 0.80 with a standard
        error of 0.02 is 0.80 and 0.02, whatever ``scale`` is.
    scale : {"identity", "logit", "log"}, default="identity"
        The scale on which scores are assumed to be normally distributed: "logit" for proportions
        and AUC, and "log" for errors, ratios and log loss. Scores are transformed, and their
        standard errors are multiplied by the derivative of the transformation (delta method). If
        scores and standard errors are already transformed, as for ``rma(yi, sei=sei)`` in R's
        metafor, use "identity", and transform the results back yourself.
    level : float, default=0.9
        Probability of all intervals.

    Returns
    -------
    PooledScores
        Means and intervals are scores; only ``tau`` and its interval are on the transformed scale.

    See Also
    --------
    observed_expected : Calibration in the large, pooled over sites.

    Notes
    -----
    :math:`\tau` is estimated by restricted maximum likelihood, and its interval is the Q-profile
    interval (``confint`` in metafor). The interval for the mean is ``test="knha"`` in metafor. The
    range of the true score at a new site averages over the Q-profile confidence distribution of
    :math:`\tau^2`. Sites whose score or standard error is NaN, whose standard error is 0, or whose
    score is at a limit of the scale (an AUC of 1), are left out and counted.

    With two or three sites, ``tau_interval`` is very wide and there is no range for a new site:
    the score at a new site is between the two extremes with a probability of only 1/3 or 1/2.

    References
    ----------
    T. P. A. Debray et al. (2017), "A guide to systematic review and meta-analysis of prediction
    model performance", BMJ 356, i6460.

    W. Viechtbauer (2007), "Confidence intervals for the amount of heterogeneity in meta-analysis",
    Statistics in Medicine 26.

    K. Nagashima, H. Noma and T. A. Furukawa (2019), "Prediction intervals for random-effects
    meta-analysis: a confidence distribution approach", Statistical Methods in Medical Research 28.

    Examples
    --------
    >>> from domainwise.metrics import pool_scores
    >>> auc, error = [0.81, 0.74, 0.88, 0.79, 0.69], [0.02, 0.03, 0.02, 0.04, 0.03]
    >>> pooled = pool_scores(auc, error, scale="logit")
    >>> round(pooled.mean, 3), pooled.differ
    (0.788, True)
    >>> [round(end, 2) for end in pooled.true_range]
    [0.56, 0.92]
    >>> [round(end, 2) for end in pooled.measured_range(0.03)]
    [0.54, 0.92]
    """
    if scale not in ("identity", "logit", "log"):
        raise ValueError(f"scale must be 'identity', 'logit' or 'log'; got {scale!r}.")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.9; got {level!r}.")
    values, standard_errors = real_numbers(scores, "scores"), real_numbers(errors, "errors")
    for name, array in (("scores", values), ("errors", standard_errors)):
        if array.ndim != 1:
            raise ValueError(f"{name} must have one dimension; got shape {array.shape}.")
    check_same_length(standard_errors, "errors", values, "scores")
    if (standard_errors < 0).any():
        raise ValueError(f"errors must not be negative; got {standard_errors.min():.3g}.")
    low, high = SCALES[scale].limits
    outside = values[(values < low) | (values > high)]
    if len(outside):
        raise ValueError(
            f"scores must be between {low:g} and {high:g} for scale={scale!r}; got "
            f"{outside[0]:.3g}. Use another scale, or pass errors with a positive sign."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        transformed_errors = standard_errors * SCALES[scale].slope(values)
        return pool_transformed(SCALES[scale].forward(values), transformed_errors, scale, level)


def pool_transformed(values: Array, errors: Array, scale: str, level: float = 0.9) -> PooledScores:
    """Pool scores that are already transformed, and transform the results back to scores."""
    is_known = np.isfinite(values) & np.isfinite(errors) & (errors > 0)
    n, n_left_out = int(is_known.sum()), int((~is_known).sum())
    if n == 0:
        raise ValueError(
            "no site has both a score and a standard error. Pass at least one site with a finite "
            "score and a positive standard error."
        )
    y, variances, to_score = values[is_known], errors[is_known] ** 2, SCALES[scale]
    if n == 1:
        nothing = (None,) * 7
        return PooledScores(
            float(to_score.backward(y[0])), *nothing, n, n_left_out, level, scale, y[0], np.nan
        )
    tau2 = reml(y, variances)
    mean, error = (float(x) for x in hartung_knapp(y, variances, tau2))
    tail = (1 + level) / 2
    spread = float(np.hypot(np.sqrt(tau2), error))
    true_range = plug_in_range = None
    if n >= MIN_SITES:
        plug_in_range = to_score.interval(mean, float(stdtrit(n - 2, tail)) * spread)
        center, radius = _true_values(y, variances, tail)
        true_range = to_score.interval(center, radius)
    mean_interval = to_score.interval(mean, float(stdtrit(n - 1, tail)) * error)
    tau_low, tau_high = np.sqrt(q_profile(y, variances, level))
    return PooledScores(
        float(to_score.backward(mean)),
        mean_interval,
        float(np.sqrt(tau2)),
        (float(tau_low), float(tau_high)),
        float(tau2 / (tau2 + typical_variance(variances))),
        q_profile(y, variances, DIFFERENCE_LEVEL)[0] > 0,
        true_range,
        plug_in_range,
        n,
        n_left_out,
        level,
        scale,
        mean,
        spread,
    )


def typical_variance(variances: Array) -> float:
    """Return the typical sampling variance of Higgins and Thompson, on which I² is based."""
    *others, largest = np.sort(1.0 / variances)
    rest = np.sum(others)  # if one weight is much larger, (Σ w)² and Σ w² cannot be subtracted
    products = rest**2 - np.sum(np.square(others)) + 2 * largest * rest
    return float((len(variances) - 1) * (largest + rest) / products)


def _weighted(y: Array, variances: Array, tau2: Any) -> tuple[Array, Array, Array]:
    """Weights (n_tau2, n_sites), weighted means, and Q, for each value of τ²."""
    weights = 1.0 / (variances + np.asarray(tau2, dtype=np.float64)[..., None])
    means = (weights * y).sum(axis=-1) / weights.sum(axis=-1)
    return weights, means, (weights * (y - means[..., None]) ** 2).sum(axis=-1)


def hartung_knapp(y: Array, variances: Array, tau2: Any) -> tuple[Array, Array]:
    """Return the mean and its Hartung-Knapp standard error, for each value of τ²."""
    weights, means, q = _weighted(y, variances, tau2)
    return means, np.sqrt(q / ((len(y) - 1) * weights.sum(axis=-1)))


def restricted_log_likelihood(y: Array, variances: Array, tau2: Any) -> Array:
    """Return the restricted log-likelihood of τ², up to a constant."""
    weights, _, q = _weighted(y, variances, tau2)
    total = np.log(weights.sum(axis=-1))
    return np.asarray(0.5 * (np.log(weights).sum(axis=-1) - total - q))


def reml(y: Array, variances: Array) -> float:
    """Return the REML estimate of τ²: the global maximum of the restricted likelihood."""

    def derivative(tau2: Any) -> Array:
        weights, means, _ = _weighted(y, variances, tau2)
        squares = (weights**2).sum(axis=-1)
        residuals = (weights**2 * (y - means[..., None]) ** 2).sum(axis=-1)
        return np.asarray(residuals - weights.sum(axis=-1) + squares / weights.sum(axis=-1))

    # Beyond this value, the derivative is negative; the maximum need not be unique.
    largest = 1.01 * max(variances.max(), 2.0 * y.var(ddof=1))
    grid = np.concatenate([[0.0], np.geomspace(1e-6 * variances.min(), largest, 200)])
    signs = np.sign(derivative(grid))
    candidates = [0.0]
    for i in np.flatnonzero((signs[:-1] > 0) & (signs[1:] <= 0)):
        candidates.append(float(brentq(derivative, grid[i], grid[i + 1], rtol=1e-13)))
    return candidates[int(np.argmax(restricted_log_likelihood(y, variances, candidates)))]


def q_profile(y: Array, variances: Array, level: float) -> Ends:
    """Return the Q-profile interval for τ²: the values at which Q is a typical χ² value."""
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        quantile = float(chdtri(len(y) - 1, tail))  # exceeded with probability ``tail``

        def excess(tau2: float, quantile: float = quantile) -> float:
            return float(_weighted(y, variances, tau2)[2]) - quantile

        if excess(0.0) <= 0:
            ends.append(0.0)
        else:  # Q <= S / τ², where S is the sum of squared deviations from the mean
            largest = len(y) * y.var() / quantile
            ends.append(float(brentq(excess, 0.0, 1.01 * largest, rtol=1e-13)))
    return ends[0], ends[1]


def _true_values(y: Array, variances: Array, tail: float) -> Ends:
    """Center and radius of the range of the transformed true score at a new site.

    The score is μ(τ) + se(τ)·t + τ·z, with τ² from its Q-profile confidence distribution, and the
    larger of the Hartung-Knapp and the usual standard error, because the former is 0 if all scores
    happen to be equal.
    """
    n, sum_of_squares = len(y), len(y) * y.var()
    u, t, z = (np.arange(0.5, N_POINTS) * GOLDEN[:, None]) % 1.0
    grid = np.zeros(1)
    if sum_of_squares > 0:
        largest = sum_of_squares / chdtri(n - 1, 1 - 1e-6)
        grid = np.append(grid, np.geomspace(min(1e-4 * variances.min(), largest / 2), largest, 400))
    # The probability of a smaller τ² is that of a larger χ² than Q(τ²).
    probabilities = chdtrc(n - 1, _weighted(y, variances, grid)[2])
    tau2 = np.interp(u, probabilities, grid)
    means, errors = hartung_knapp(y, variances, tau2)
    weights = _weighted(y, variances, tau2)[0]
    errors = np.maximum(errors, weights.sum(axis=-1) ** -0.5)
    draws = means + errors * stdtrit(n - 1, t) + np.sqrt(tau2) * ndtri(z)
    low, high = np.quantile(draws, (1 - tail, tail))
    return float((low + high) / 2), float((high - low) / 2)


#: Number of bootstrap samples of a site's rows, if there is no formula for the standard error.
N_DRAWS = 100
#: Beginnings of the names of scorers whose values are between 0 and 1.
_SHARES = (
    *("accuracy", "balanced_accuracy", "top_k_accuracy", "roc_auc", "average_precision"),
    *("f1", "jaccard", "precision", "recall"),
)
#: Beginnings of the names of scorers that do not depend on how frequent classes are.
_WITHIN_CLASSES = ("balanced_accuracy", "roc_auc", "recall_macro")
#: Beginnings of the names of scorers that are 1 minus a relative error.
_EXPLAINED = ("r2", "explained_variance", "d2_")


def scale_of(measure: Measure) -> str:
    """Return the scale on which scores are pooled, as displayed (errors are positive).

    It is "log" for errors, "logit" for shares and AUC, "log1m" for R² and "identity" otherwise.
    """
    if measure.is_custom:
        return "identity"
    if measure.sign < 0:
        return "log"
    if measure.name.startswith(_EXPLAINED):
        return "log1m"
    return "logit" if measure.name.startswith(_SHARES) else "identity"


def inside(scores: Any, n_rows: Any, scale: str) -> Array:
    """Move shares of 0 and 1 inside by half a row, so that their logit is finite."""
    values = np.asarray(scores, dtype=np.float64)
    if scale != "logit":
        return values
    return np.clip(values, 0.5 / np.asarray(n_rows), 1.0 - 0.5 / np.asarray(n_rows))


def auc_error(is_event: Array, scores: Array, weights: Array | None = None) -> tuple[float, float]:
    """Return the area under the ROC curve, and its standard error (DeLong).

    >>> auc, error = auc_error(np.array([False, False, True, True]), np.array([1.0, 3, 2, 4]))
    >>> auc, round(error, 3)
    (0.75, 0.354)
    """
    if is_event.all() or not is_event.any():
        return float("nan"), float("nan")
    weights = np.ones(len(scores)) if weights is None else weights
    auc, error = mean_error(shares_below(scores, is_event, weights), weights[is_event])
    _, other_error = mean_error(shares_below(scores, ~is_event, weights), weights[~is_event])
    return auc, float(np.hypot(error, other_error))


def score_error(
    measure: Measure,
    classes: Array | None,
    outputs: Outputs,
    score: float,
    n_draws: int = N_DRAWS,
) -> float:
    """Return the standard error of a site's score; NaN if it cannot be computed.

    Shares of correct predictions, AUC and mean errors have formulas. For scores that do not depend
    on how frequent classes are, their sizes are fixed; otherwise, the share of a class is part of
    what differs by chance. Other errors are the standard deviation of ``n_draws`` bootstrap scores,
    on the scale of :func:`scale_of`. Perfect scores are moved inside by half a row.
    """
    targets, predictions, weights = outputs.target, outputs.prediction, outputs.row_weights
    n, name = weights.sum(), measure.name
    if name in ("accuracy", "balanced_accuracy"):
        groups = targets if name == "balanced_accuracy" else np.zeros(len(targets))
        codes = np.unique(groups, return_inverse=True)[1]
        sizes = np.bincount(codes, weights)
        recalls = (np.bincount(codes, weights * (targets == predictions)) + 0.5) / (sizes + 1.0)
        return float(np.sqrt(np.mean(recalls * (1.0 - recalls) / sizes) / len(sizes)))
    if name == "roc_auc" and classes is not None and len(classes) == 2:
        values = outputs.decisions
        values = outputs.probabilities[:, 1] if values is None else values
        auc, error = auc_error(targets == classes[1], values, weights)
        if error > 0:
            return error
        auc = float(inside(auc, n, "logit"))
        n_smaller = min(weights[targets == c].sum() for c in classes)
        return float(np.sqrt(auc * (1.0 - auc) / n_smaller)) if n_smaller else float("nan")
    powers = {"neg_mean_absolute_error": 1, "neg_mean_squared_error": 2}
    powers["neg_root_mean_squared_error"] = 2
    if name in powers and n > 1:
        terms = np.abs(targets.astype(np.float64) - predictions) ** powers[name]
        error = mean_error(terms, weights)[1]
        return error / (2.0 * abs(score)) if "root" in name and score else error
    scale = scale_of(measure)
    scores = measure.sign * bootstrap_scores_of(measure, classes, outputs, n_draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = SCALES[scale].forward(inside(scores, n, scale))
        slope = SCALES[scale].slope(inside(measure.shown(score), n, scale))
    draws = draws[np.isfinite(draws)]
    return float(draws.std(ddof=1) / slope) if len(draws) > 1 else float("nan")


def bootstrap_scores_of(
    measure: Measure,
    classes: Array | None,
    outputs: Outputs,
    n_draws: int = N_DRAWS,
) -> Array:
    """Return bootstrap scores of a site, which do not depend on the order of its rows.

    Classes keep their sizes if the score does not depend on how frequent they are.
    """
    n = len(outputs.target)
    arrays = [getattr(outputs, f.name) for f in fields(Outputs) if f.name != "domain"]
    keys = [key for a in arrays if a is not None for key in np.reshape(a, (n, -1)).T]
    outputs, rng = outputs.take(np.lexsort(keys)), np.random.default_rng([0, n])
    samples = np.empty((n_draws, n), dtype=np.intp)
    keeps_sizes = classes is not None and measure.name.startswith(_WITHIN_CLASSES)
    strata = outputs.target if keeps_sizes else np.zeros(n)
    score = partial(measure.score_outputs, classes)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        if outputs.weight is None:
            samples[:, rows] = rng.choice(rows, (n_draws, len(rows)))
        else:  # how often a sample contains each row, if rows are repeated as their weights say
            weights = outputs.weight[rows]
            n_drawn = round(weights.sum())
            samples[:, rows] = rng.multinomial(n_drawn, weights / weights.sum(), n_draws)
    if outputs.weight is None:
        return np.array([defined_score(score, outputs, rows) for rows in samples])
    drawn = (replace(outputs, weight=counts).take(counts > 0) for counts in samples)
    return np.array([defined_score(score, sample) for sample in drawn])


def true_score_range(
    measure: Measure, classes: Array | None, outputs_by_site: Sequence[Outputs]
) -> Ends | None:
    """Return a 90 % range for the true score at a new site, from outputs for each held-out site.

    Larger scores are better, as in ``expected_range_``. None for fewer than four sites.
    """
    all_rows = np.s_[:]
    scores = [
        defined_score(partial(measure.score_outputs, classes, outputs), all_rows)
        for outputs in outputs_by_site
    ]
    errors = [
        score_error(measure, classes, outputs, score) if np.isfinite(score) else np.nan
        for outputs, score in zip(outputs_by_site, scores, strict=True)
    ]
    if np.isfinite(errors).sum() < MIN_SITES:
        return None
    n_rows = np.array([outputs.row_weights.sum() for outputs in outputs_by_site])
    pooled = pool_measure(measure, measure.sign * np.array(scores), np.array(errors), n_rows)
    if pooled.true_range is None:
        return None
    low, high = sorted(map(measure.shown, pooled.true_range))
    return low, high


def pool_measure(
    measure: Measure, scores: Array, errors: Array, n_rows: Array, level: float = 0.9
) -> PooledScores:
    """Pool the scores of sites, as displayed, on the scale of the measure."""
    scale = scale_of(measure)
    values = inside(scores, n_rows, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        transformed_errors = errors * SCALES[scale].slope(values)
        return pool_transformed(SCALES[scale].forward(values), transformed_errors, scale, level)
