"""Priors by which a few labels from a new site correct outputs there (theory 17).

The errors of a model at a new site are partly systematic: in level, in slope or in class
frequencies. How much sites differ is learned from *held-out outputs*: outputs for source rows from
a model that was fitted without their domain. All priors have the methods ``learn_without``,
``corrections`` (from outputs and targets of labelled rows) and ``apply``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.special import log_softmax
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise.base.arrays import Array, evenly_spaced
from domainwise.base.inputs import quiet_about_domains, take_rows
from domainwise.base.process import one_thread
from domainwise.held_out.calibration.quantiles import DomainQuantiles
from domainwise.held_out.folds import domain_folds
from domainwise.held_out.scoring.predictions import fit_with_domains

#: Probabilities are mixed with this share of the uniform distribution, because some may be zero.
SMOOTHING = 0.01
#: Candidates for the prior standard deviations of a class's bias and of the slope; 0 fixes both.
BIAS_SCALES = (0.0, 0.0625, 0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
SLOPE_SCALES = (0.0, 0.1, 0.2, 0.4)
#: Choose the smallest scales whose likelihood is within this many standard errors of the largest.
TOLERATED_STANDARD_ERRORS = 0.75
SCALES = np.array(list(product(BIAS_SCALES, SLOPE_SCALES)))
#: Scales if there is a single source domain, which does not show how domains differ.
DEFAULT_SCALES = (0.5, 0.0)
#: Number of artificial labels, with the class shares of source domains, added to a site's labels.
PRIOR_ROWS = 10.0
#: Smallest probability whose logarithm is corrected.
MIN_CORRECTED = 1e-12
#: Smallest slope of corrected log-odds, which keeps the order of probabilities.
MIN_SLOPE = 0.1
#: Statistics use domains with at least this many rows, or all domains if all are smaller.
MIN_ROWS = 5
#: Labels get less weight if outputs for their rows vary less than in this share of random samples.
SPREAD_QUANTILE = 0.25
#: Numbers of labels for which scores and weights of the within-site model are computed.
LABEL_COUNTS = (0, 5, 10, 20, 50)
#: Maximum number of source domains that are treated as new sites.
MAX_DOMAINS = 40
#: Weights of the within-site model that are compared, and random draws of labels by domain.
WITHIN_WEIGHTS, WITHIN_DRAWS = (0.0, 0.25, 0.5, 0.75, 1.0), 10
#: Number of groups of domains that are held out to score a within-site model.
WITHIN_FOLDS = 5
#: Minimum number of source domains for a within-site model.
MIN_DOMAINS = 3
#: There is no within-site model if levels vary less than this share of the noise in a domain.
MIN_LEVEL_SHARE = 0.005


@dataclass(frozen=True)
class SourceOutputs:
    """Outputs for source rows from a model that was fitted without their domain.

    ``outputs`` has one column per class (probabilities), or a single column (a continuous target).
    For a continuous target, a second column may contain the outputs of a within-site model.
    """

    y: Array  #: class codes, or values of a continuous target
    domain_codes: Array  #: code of each row's domain
    outputs: Array
    weights: Array | None = None  #: weights of rows, for scores; None without weights

    @property
    def has_classes(self) -> bool:
        """Whether the outputs are probabilities of classes."""
        return self.y.dtype.kind in "iu"

    def take(self, rows: Array) -> SourceOutputs:
        """Return the outputs for some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return SourceOutputs(self.y[rows], self.domain_codes[rows], self.outputs[rows], weights)

    def rows_by_domain(self, min_rows: int = 1) -> dict[int, Array]:
        """Return the rows of each domain with at least ``min_rows`` rows, by domain code."""
        codes, counts = np.unique(self.domain_codes, return_counts=True)
        codes = codes[counts >= min_rows]
        return {int(code): np.flatnonzero(self.domain_codes == code) for code in codes}

    def usable_rows_by_domain(self) -> dict[int, Array]:
        """Return the rows of each domain with enough rows, or of all domains if all are small."""
        return self.rows_by_domain(MIN_ROWS) or self.rows_by_domain()

    def sites(self) -> list[int]:
        """Return the codes of the domains that are treated as new sites."""
        codes = [*self.rows_by_domain(2 * LABEL_COUNTS[1])]
        return [codes[i] for i in evenly_spaced(len(codes), MAX_DOMAINS)]


def nonconformity(outputs: Array, y: Array) -> Array:
    """Return 1 minus the probability of each row's class, or the absolute error of its output."""
    if y.dtype.kind not in "iu":
        return np.abs(y - outputs[:, 0])
    return np.asarray(1.0 - outputs[np.arange(len(y)), y])


def domain_quantiles(held_out: SourceOutputs, *, guaranteed: bool = False) -> DomainQuantiles:
    """Return quantiles of the nonconformity scores of held-out outputs."""
    scores = nonconformity(held_out.outputs, held_out.y)
    arguments = scores, held_out.domain_codes, held_out.weights
    if guaranteed:
        return DomainQuantiles.from_scores(*arguments)
    return DomainQuantiles.approximately(*arguments, are_probabilities=held_out.has_classes)


@dataclass(frozen=True)
class Spread:
    """Variance of outputs within a domain, used to give less weight to labels of similar rows.

    Ten labels of similar rows say less about a site than ten labels of random rows. Rows
    are similar if their outputs vary less than those of random rows from a source domain.
    """

    variance: float  #: variance of outputs within a source domain, averaged over domains
    lowest: float  #: low quantile of these variances, divided by their mean

    @classmethod
    def learn(cls, held_out: SourceOutputs) -> Spread:
        """Estimate the variances from held-out outputs."""
        domain_rows = held_out.usable_rows_by_domain().values()
        variances = [held_out.outputs[rows].var(axis=0).sum() for rows in domain_rows]
        mean_variance = float(np.mean(variances))
        if mean_variance <= 0.0:
            return cls(0.0, 1.0)
        return cls(mean_variance, float(np.quantile(variances, SPREAD_QUANTILE)) / mean_variance)

    def weights(self, outputs: Array) -> Array:
        """Return the weight of labels in each draw; outputs have shape (draws, labels, columns)."""
        n_labels = outputs.shape[1]
        if n_labels < 2 or self.variance <= 0.0 or self.lowest <= 0.0:
            return np.ones(len(outputs))
        threshold = self.lowest * chi2.ppf(SPREAD_QUANTILE, n_labels - 1) / (n_labels - 1)
        ratios = outputs.var(axis=1, ddof=1).sum(axis=1) / self.variance
        return np.clip(ratios / threshold, 1.0 / n_labels, 1.0)


@dataclass(frozen=True)
class LinePrior:
    """Normal prior for the level and slope that correct outputs for a continuous target.

    The corrected value is ``output + level + slope * (output - centre)``. The prior variances of
    level and slope are their mean squares over source domains, minus their sampling variances.
    """

    centre: float  #: mean of the held-out outputs
    level: float  #: prior variance of the level
    slope: float  #: prior variance of the slope
    noise: float  #: variance of residuals within a domain
    spread: Spread

    @classmethod
    def learn_without(
        cls, held_out: SourceOutputs, excluded_codes: Sequence[int | None]
    ) -> list[LinePrior]:
        """Return a prior for each excluded domain (None excludes none), learned from the others.

        All domains have the same weight.
        """
        center, spread = float(np.mean(held_out.outputs)), Spread.learn(held_out)
        rows_by_domain = held_out.usable_rows_by_domain()
        codes = np.array(list(rows_by_domain))
        statistics = np.array([cls._squares(held_out, r, center) for r in rows_by_domain.values()])
        priors = []
        for code in excluded_codes:
            others = statistics[codes != code] if (codes != code).any() else statistics
            noise = float(others[:, 2].mean())
            if len(others) < 2:  # differences between sites are unknown: use the noise variance
                priors.append(cls(center, noise, 0.0, noise, spread))
                continue
            slopes = others[np.isfinite(others[:, 1]), 1]
            level, slope = others[:, 0].mean(), slopes.mean() if len(slopes) else 0.0
            priors.append(cls(center, max(0.0, level), max(0.0, slope), noise, spread))
        return priors

    @staticmethod
    def _squares(held_out: SourceOutputs, rows: Array, center: float) -> tuple[float, float, float]:
        """Return unbiased squares of a domain's level and slope (or NaN), and its noise."""
        x = held_out.outputs[rows, 0] - center
        errors = held_out.y[rows] - held_out.outputs[rows, 0]
        median = np.median(errors)
        limit = 3.0 * (1.4826 * np.median(np.abs(errors - median)))  # 3 sigma, from the MAD
        errors = np.clip(errors, median - limit, median + limit) if limit > 0.0 else errors
        n_rows, variance = len(rows), float(errors.var(ddof=1)) if len(rows) > 1 else 0.0
        squared_level, squared_slope = errors.mean() ** 2 - variance / n_rows, np.nan
        deviations = x - x.mean()
        sum_of_squares = float(deviations @ deviations)
        if n_rows >= 2 * MIN_ROWS and sum_of_squares > 0.0:
            slope = float(deviations @ errors) / sum_of_squares
            residuals = errors - errors.mean() - slope * deviations
            sampling_variance = float(residuals @ residuals) / (n_rows - 2) / sum_of_squares
            squared_slope = slope**2 - sampling_variance
        return float(squared_level), float(squared_slope), variance

    def corrections(self, outputs: Array, y: Array) -> Array:
        """Return the posterior means of level and slope for each draw of labels."""
        x, errors = outputs[:, :, 0] - self.centre, y - outputs[:, :, 0]
        prior_variances = np.array([self.level, self.slope])
        free_indices = np.flatnonzero(prior_variances > 0.0)  # the others are fixed at 0
        corrections = np.zeros((len(outputs), 2))
        if not len(free_indices) or not outputs.shape[1]:
            return corrections
        design = np.stack([np.ones_like(x), x], axis=2)[:, :, free_indices]
        weights = self.spread.weights(outputs)[:, None, None]
        noise = self.noise or 1e-12 * float(prior_variances[free_indices].max())
        precision = weights * np.swapaxes(design, 1, 2) @ design / noise
        precision += np.diag(1.0 / prior_variances[free_indices])
        right_hand_side = weights * np.swapaxes(design, 1, 2) @ errors[:, :, None] / noise
        corrections[:, free_indices] = np.linalg.solve(precision, right_hand_side)[:, :, 0]
        return corrections

    def apply(self, outputs: Array, correction: Any) -> Array:
        """Return corrected outputs."""
        level, slope = correction
        return outputs + level + slope * (outputs - self.centre)


@dataclass(frozen=True)
class WithinPrior:
    """Prior for a mixture of a model and a within-site model, with a level and slope.

    Outputs have two columns: those of the model, and those of a model of differences inside a site,
    whose level is unknown. The latter are moved to the mean of the former on the labelled rows. The
    weight of the within-site model depends on the number of labels. It is positive only if
    this makes errors on held-out domains, after adaptation, smaller by a standard error.
    """

    lines: tuple[LinePrior, ...]  #: the prior for each weight in ``WITHIN_WEIGHTS``
    choices: Array  #: index of the weight for each number of labels in ``LABEL_COUNTS``

    @classmethod
    def learn_without(
        cls, held_out: SourceOutputs, excluded_codes: Sequence[int | None]
    ) -> list[WithinPrior]:
        """Return a prior for each excluded domain (None excludes none), learned from the others."""
        losses, lines = _compared_weights(held_out, excluded_codes)
        sites = np.array(held_out.sites())
        return [
            cls(prior_lines, choose_weights(losses[sites != code]))
            for code, prior_lines in zip(excluded_codes, lines, strict=True)
        ]

    @property
    def centre(self) -> float:
        """Mean of the held-out outputs; the same for all weights."""
        return self.lines[0].centre

    def corrections(self, outputs: Array, y: Array) -> Array:
        """Return level, slope, weight and offset of the within-site model for each draw."""
        n_labels = outputs.shape[1]
        if not n_labels:
            return np.zeros((len(outputs), 4))
        distances = np.abs(np.log(n_labels / np.array(LABEL_COUNTS[1:])))
        index = int(self.choices[1 + int(distances.argmin())])
        weight, offsets = WITHIN_WEIGHTS[index], (outputs[:, :, 0] - outputs[:, :, 1]).mean(axis=1)
        mixture = _mix(outputs, weight, offsets[:, None])[:, :, None]
        terms = self.lines[index].corrections(mixture, y)
        return np.column_stack([terms, np.full(len(outputs), weight), offsets])

    def apply(self, outputs: Array, correction: Array) -> Array:
        """Return corrected outputs."""
        *terms, weight, offset = correction
        return self.lines[0].apply(_mix(outputs, weight, offset)[:, None], terms)


def _mix(outputs: Array, weight: float, offset: Any) -> Array:
    """Return the mixture of the outputs of a model and of a within-site model."""
    plain = outputs[..., 0]
    return np.asarray(plain + weight * (outputs[..., 1] + offset - plain)) if weight else plain


def _compared_weights(
    held_out: SourceOutputs, excluded_codes: Sequence[int | None]
) -> tuple[Array, list[tuple[LinePrior, ...]]]:
    """Compare the weights of a within-site model on domains that are treated as new sites.

    Return losses of shape (sites, numbers of labels, weights), and for each excluded domain the
    priors for all weights that are learned from the others.
    """
    sites, losses, lines = held_out.sites(), [], []
    for weight in WITHIN_WEIGHTS:
        mixture = np.empty((len(held_out.y), 1))
        for rows in held_out.rows_by_domain().values():
            plain, within = held_out.outputs[rows].T
            mixture[rows, 0] = _mix(held_out.outputs[rows], weight, plain.mean() - within.mean())
        mixed = replace(held_out, outputs=mixture)
        priors = LinePrior.learn_without(mixed, [*sites, *excluded_codes])
        lines.append(priors[len(sites) :])
        rows_by_domain = held_out.rows_by_domain()
        losses += [
            _losses(held_out.take(rows_by_domain[code]), prior, weight)
            for code, prior in zip(sites, priors, strict=False)
        ]
    shape = len(WITHIN_WEIGHTS), len(sites), len(LABEL_COUNTS)
    return np.reshape(losses, shape).transpose(1, 2, 0), list(zip(*lines, strict=True))


def choose_weights(losses: Array) -> Array:
    """Return the index of a weight for each number of labels, from losses on domains.

    The weight is 0 unless another is better by a standard error.
    """
    choices = np.zeros(len(LABEL_COUNTS), dtype=np.intp)
    for j in range(1, len(LABEL_COUNTS)):
        excess = losses[:, j] - losses[:, j, :1]
        excess = excess[np.isfinite(excess).all(axis=1)]
        if len(excess) < MIN_DOMAINS:  # too few are large enough for this number of labels
            choices[j] = choices[j - 1]
            continue
        means, errors = excess.mean(axis=0), excess.std(axis=0, ddof=1) / np.sqrt(len(excess))
        best = int(means.argmin())
        choices[j] = best if means[best] < -errors[best] else 0
    return choices


def _losses(site: SourceOutputs, prior: LinePrior, weight: float) -> Array:
    """Return the logarithm of the error after adaptation, by number of labels."""
    rng, losses = np.random.default_rng(0), np.full(len(LABEL_COUNTS), np.nan)
    orders = np.array([rng.permutation(len(site.y)) for _ in range(WITHIN_DRAWS)])
    for j, n_labels in enumerate(LABEL_COUNTS):
        if not n_labels or 2 * n_labels > len(site.y):
            continue
        outputs, y = site.outputs[orders], site.y[orders]
        offsets = (outputs[:, :n_labels, 0] - outputs[:, :n_labels, 1]).mean(axis=1)
        mixture = _mix(outputs, weight, offsets[:, None])
        terms = prior.corrections(mixture[:, :n_labels, None], y[:, :n_labels])
        corrected = prior.apply(mixture[:, n_labels:], terms.T[:, :, None])
        mean_square = float(np.mean((corrected - y[:, n_labels:]) ** 2))
        losses[j] = 0.5 * np.log(max(mean_square, 1e-300))
    return losses


def learn_within(
    X: Any, held_out: SourceOutputs, estimators: Sequence[Any] | None = None
) -> tuple[Any, Array] | None:
    """Fit a within-site model to source rows; return it, and its outputs for held-out domains.

    It predicts the target minus its mean in the domain. Of the candidates (by default, ridge
    regression and boosting), the one with the smallest errors after adaptation is used. The result
    is None if all candidates have the weight 0, or if the level hardly differs between domains.
    """
    prior = LinePrior.learn_without(held_out, [None])[0]
    codes = np.unique(held_out.domain_codes, return_inverse=True)[1]
    if codes.max(initial=0) < MIN_DOMAINS - 1 or prior.level <= MIN_LEVEL_SHARE * prior.noise:
        return None
    weights = np.ones(len(codes)) if held_out.weights is None else held_out.weights
    means = np.bincount(codes, weights * held_out.y) / np.bincount(codes, weights)
    y = held_out.y - means[codes]
    options: Any = {"classification": False, "max_splits": WITHIN_FOLDS, "X": codes[:, None]}
    splits, _ = domain_folds(held_out.y, codes, **options)

    def fit(estimator: Any, rows: Array) -> Any:
        row_weights = None if held_out.weights is None else weights[rows]
        return fit_with_domains(clone(estimator), take_rows(X, rows), y[rows], None, row_weights)

    best_loss, best = 0.0, None
    with one_thread(), quiet_about_domains():
        for estimator in within_estimators(len(y)) if estimators is None else estimators:
            outputs = np.empty(len(y))
            for train, test in splits:
                test_outputs = fit(estimator, train).predict(take_rows(X, test))
                outputs[test] = np.asarray(test_outputs, dtype=np.float64).ravel()
            columns = np.column_stack([held_out.outputs[:, 0], outputs])
            losses, _ = _compared_weights(replace(held_out, outputs=columns), [])
            choices = choose_weights(losses)
            excess = (losses - losses[..., :1])[:, np.arange(len(choices)), choices]
            if choices.any() and np.nanmean(excess) < best_loss:
                best_loss, best = float(np.nanmean(excess)), (estimator, outputs)
        return None if best is None else (fit(best[0], np.arange(len(y))), best[1])


def within_estimators(n_rows: int) -> list[Any]:
    """Return unfitted candidates for the within-site model."""
    ridge = make_pipeline(SimpleImputer(), StandardScaler(), Ridge(max(1.0, n_rows / 300)))
    options: Any = {"max_iter": 120, "max_leaf_nodes": 16, "min_samples_leaf": 5}
    boosting = HistGradientBoostingRegressor(**options, early_stopping=False, random_state=0)
    return [ridge, boosting]


@dataclass(frozen=True)
class ClassPrior:
    """Normal prior for biases and a slope that correct logarithms of probabilities.

    With the logarithms ``l`` of the probabilities, the corrected ones are proportional to
    ``exp(bias + slope * l)``. Biases sum to 0, and have the prior mean 0; the slope has 1. Their
    standard deviations maximize the likelihood of source domains, in Laplace's approximation.
    """

    scale: float  #: prior standard deviation of a bias
    slope: float  #: prior standard deviation of the slope
    centre: Array  #: means of the logarithms, at which a slope changes nothing
    shares: Array  #: class shares, averaged over source domains
    spread: Spread

    @classmethod
    def learn_without(
        cls, held_out: SourceOutputs, excluded_codes: Sequence[int | None]
    ) -> list[ClassPrior]:
        """Return a prior for each excluded domain (None excludes none), learned from the others."""
        logs, n_classes = smooth_logs(held_out.outputs), held_out.outputs.shape[1]
        rows_by_domain = held_out.usable_rows_by_domain()
        codes = np.array(list(rows_by_domain))
        counts = [np.bincount(held_out.y[r], minlength=n_classes) for r in rows_by_domain.values()]
        shares = np.array([count / count.sum() for count in counts])
        spread = Spread.learn(replace(held_out, outputs=logs))
        prior = cls(0.0, 0.0, logs.mean(axis=0), _make_positive(shares.mean(axis=0)), spread)
        likelihoods = np.array(
            [prior._likelihoods(logs[r], held_out.y[r]) for r in rows_by_domain.values()]
        )
        priors = []
        for code in excluded_codes:
            is_used = codes != code if (codes != code).any() else codes == code
            scales = _choose_scales(likelihoods[is_used])
            mean_shares = _make_positive(shares[is_used].mean(axis=0))
            priors.append(replace(prior, scale=scales[0], slope=scales[1], shares=mean_shares))
        return priors

    def _likelihoods(self, logs: Array, y: Array) -> Array:
        """Return the logarithm of the likelihood of a domain's rows for each pair of scales."""
        n = len(SCALES)
        draws = np.broadcast_to(logs, (n, *logs.shape)), np.broadcast_to(y, (n, len(y)))
        return self._fit(*draws, SCALES, np.ones(n))[1]

    def corrections(self, outputs: Array, y: Array) -> Array:
        """Return the biases, and the slope minus 1, for each draw of labels."""
        n_draws, n_labels, n_classes = outputs.shape
        if self.scale == self.slope == 0.0 or not n_labels:
            return np.zeros((n_draws, n_classes + 1))
        logs = smooth_logs(outputs)
        scales = np.tile([self.scale, self.slope], (n_draws, 1))
        return self._fit(logs, y, scales, self.spread.weights(logs))[0]

    def _fit(self, logs: Array, y: Array, scales: Array, weights: Array) -> tuple[Array, Array]:
        """Compute the most probable terms for each draw, and the likelihood of the labels.

        Terms are found by Newton's method with bounded steps.
        """
        n_draws, _, n_classes = logs.shape
        x, indicators, weights = logs - self.centre, np.eye(n_classes)[y], weights[:, None]
        precisions = np.repeat(np.maximum(scales, 1e-5) ** -2.0, [n_classes, 1], axis=1)
        terms, diagonal = np.zeros((n_draws, n_classes + 1)), np.arange(n_classes + 1)
        log_p, hessian = logs, np.zeros((n_draws, n_classes + 1, n_classes + 1))
        for _ in range(50):
            log_p = log_softmax(logs + terms[:, None, -1:] * x + terms[:, None, :-1], axis=2)
            p = np.exp(log_p)
            residuals, px = p - indicators, p * x
            means = px.sum(axis=2)
            slopes = (residuals * x).sum(axis=(1, 2))
            gradient = np.column_stack([residuals.sum(axis=1), slopes]) * weights
            hessian[:, :-1, :-1] = -np.swapaxes(p, 1, 2) @ p
            hessian[:, diagonal[:-1], diagonal[:-1]] += p.sum(axis=1)
            hessian[:, :-1, -1] = hessian[:, -1, :-1] = (px - p * means[:, :, None]).sum(axis=1)
            hessian[:, -1, -1] = (px * x).sum(axis=(1, 2)) - (means**2).sum(axis=1)
            hessian *= weights[:, :, None]
            hessian[:, diagonal, diagonal] += precisions
            step = np.linalg.solve(hessian, (gradient + precisions * terms)[:, :, None])[:, :, 0]
            largest_step = np.abs(step).max(axis=1, keepdims=True)
            if largest_step.max() < 1e-9:
                break
            terms -= step * np.minimum(1.0, 1.0 / np.maximum(largest_step, 1e-12))
        terms[:, :-1] -= terms[:, :-1].mean(axis=1, keepdims=True)
        terms[:, -1] = np.maximum(terms[:, -1], MIN_SLOPE - 1.0)
        fits = weights[:, 0] * (log_p * indicators).sum(axis=(1, 2))
        fits += 0.5 * (np.log(precisions) - precisions * terms**2).sum(axis=1)
        return terms, fits - 0.5 * np.linalg.slogdet(hessian)[1]

    def apply(self, outputs: Array, correction: Array) -> Array:
        """Return corrected probabilities, which are exactly the outputs if all terms are 0."""
        if not np.any(correction):
            return outputs
        biases, slope = correction[:-1] - correction[-1] * self.centre, 1.0 + correction[-1]
        logs = slope * np.log(np.maximum(outputs, MIN_CORRECTED)) + biases
        return np.exp(log_softmax(logs, axis=1))

    def site_shares(self, corrected: Array) -> Array:
        """Return the class shares at a site, from corrected probabilities of labelled rows."""
        total = corrected.sum(axis=0) + PRIOR_ROWS * self.shares
        return np.asarray(total / total.sum())


def _choose_scales(likelihoods: Array) -> tuple[float, float]:
    """Return the smallest scales whose likelihood is about the largest, given those of domains."""
    if len(likelihoods) < 2:
        return DEFAULT_SCALES
    best = int(likelihoods.mean(axis=0).argmax())
    deficits = likelihoods[:, [best]] - likelihoods
    errors = deficits.std(axis=0, ddof=1) / np.sqrt(len(deficits))
    good = np.flatnonzero(deficits.mean(axis=0) <= TOLERATED_STANDARD_ERRORS * errors)
    scale, slope = SCALES[good[(SCALES[good] ** 2).sum(axis=1).argmin()]]
    return float(scale), float(slope)


def smooth_logs(probabilities: Array) -> Array:
    """Return logarithms of probabilities, which are first smoothed so that all are positive."""
    return np.log((1.0 - SMOOTHING) * probabilities + SMOOTHING / probabilities.shape[-1])


def _make_positive(shares: Array) -> Array:
    """Return shares that are all positive and sum to 1."""
    shares = np.maximum(shares, 1e-3)
    return shares / shares.sum()


Prior = LinePrior | WithinPrior | ClassPrior


def leave_one_out_priors(held_out: SourceOutputs, codes: Sequence[int | None]) -> list[Prior]:
    """Return, for each domain, the prior learned from the other domains; None uses all domains."""
    kind: Any = ClassPrior
    if not held_out.has_classes:
        kind = LinePrior if held_out.outputs.shape[1] == 1 else WithinPrior
    priors: list[Prior] = kind.learn_without(held_out, codes)
    return priors


def learn_prior(held_out: SourceOutputs) -> Prior:
    """Return the prior for classes or a continuous target, learned from held-out outputs."""
    return leave_one_out_priors(held_out, [None])[0]
