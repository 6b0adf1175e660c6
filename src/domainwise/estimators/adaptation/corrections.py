"""Correct outputs with a few labels from a new site, and estimate the gain (theory 17).

The errors of a model at a new site are partly systematic: in level, slope or class shares. How much
sites differ is learned from *held-out outputs*: outputs for source rows from a model that was
fitted without their domain. Both priors below have the methods ``learn``, ``corrections`` (from
outputs and targets of labelled rows) and ``apply``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import log_softmax
from scipy.stats import chi2

from domainwise.base.arrays import Array, evenly_spaced
from domainwise.held_out.calibration.decisions import DecisionRule
from domainwise.held_out.calibration.quantiles import (
    TOLERANCE,
    DomainQuantiles,
    Thresholds,
    needed_domains,
)
from domainwise.held_out.scoring.measures import Measure, choose_measure
from domainwise.held_out.scoring.predictions import Outputs, balanced_accuracy
from domainwise.held_out.scoring.statistics import defined_score, expected_score

#: Probabilities are mixed with this share of the uniform distribution, because some may be zero.
SMOOTHING = 0.01
#: Number of artificial labels, with the class shares of source domains, added to a site's labels.
PRIOR_ROWS = 10.0
#: Candidates for the prior standard deviation of a class's bias; 0 means no correction.
BIAS_SCALES = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0)
#: Choose the smallest scale whose loss is within this many standard errors of the smallest loss.
TOLERATED_STANDARD_ERRORS = 0.5
#: The scale if there is a single source domain, which does not show how domains differ.
DEFAULT_SCALE = 0.5
#: Number of labels in a draw, and number of random draws, to compare scales.
COMPARED_LABELS, COMPARED_DRAWS = 10, 8
#: Statistics use domains with at least this many rows, or all domains if all are smaller.
MIN_ROWS = 5
#: Labels get less weight if outputs for their rows vary less than in this share of random samples.
SPREAD_QUANTILE = 0.25
#: Numbers of labels for which the expected score is computed.
LABEL_COUNTS = (0, 5, 10, 20, 50)
#: Number of draws of labels from each source domain: for expected scores, and for intervals.
DRAWS, CALIBRATION_DRAWS = 20, 10
#: Maximum number of source domains that are treated as new sites.
MAX_DOMAINS = 40

#: Function of outputs and targets that returns a score; larger is better.
Score = Callable[..., float]  #: of outputs, targets and (possibly) weights


@dataclass(frozen=True)
class SourceOutputs:
    """Outputs for source rows from a model that was fitted without their domain.

    ``outputs`` has one column per class (probabilities), or a single column (a continuous target).
    """

    y: Array  #: class codes, or values of a continuous target
    domain_codes: Array  #: code of each row's domain
    outputs: Array
    relative: bool = False  #: whether decisions divide probabilities by class shares
    weights: Array | None = None  #: weights of rows, for scores; None without weights

    def take(self, rows: Array) -> SourceOutputs:
        """Return the outputs for some of the rows."""
        arrays = (self.y[rows], self.domain_codes[rows], self.outputs[rows])
        weights = None if self.weights is None else self.weights[rows]
        return SourceOutputs(*arrays, relative=self.relative, weights=weights)

    def rows_by_domain(self, min_rows: int = 1) -> dict[int, Array]:
        """Return the rows of each domain with at least ``min_rows`` rows, by domain code."""
        codes, counts = np.unique(self.domain_codes, return_counts=True)
        codes = codes[counts >= min_rows]
        return {int(code): np.flatnonzero(self.domain_codes == code) for code in codes}

    def usable_rows_by_domain(self) -> dict[int, Array]:
        """Return the rows of each domain with enough rows, or of all domains if all are small."""
        return self.rows_by_domain(MIN_ROWS) or self.rows_by_domain()


def nonconformity(outputs: Array, y: Array) -> Array:
    """Return 1 minus the probability of each row's class, or the absolute error of its output."""
    if outputs.shape[1] == 1:
        return np.abs(y - outputs[:, 0])
    return np.asarray(1.0 - outputs[np.arange(len(y)), y])


def domain_quantiles(held_out: SourceOutputs, *, guaranteed: bool = False) -> DomainQuantiles:
    """Return quantiles of the nonconformity scores of held-out outputs."""
    scores = nonconformity(held_out.outputs, held_out.y)
    arguments = scores, held_out.domain_codes, held_out.weights
    if guaranteed:
        return DomainQuantiles.from_scores(*arguments)
    are_probabilities = held_out.outputs.shape[1] > 1
    return DomainQuantiles.approximately(*arguments, are_probabilities=are_probabilities)


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
    def learn(cls, held_out: SourceOutputs) -> LinePrior:
        """Learn the prior from held-out outputs; all domains have the same weight."""
        center = float(np.mean(held_out.outputs))
        level_variances, slope_variances, noise_variances = [], [], []
        domain_rows = held_out.usable_rows_by_domain().values()
        for rows in domain_rows:
            x = held_out.outputs[rows, 0] - center
            errors = held_out.y[rows] - held_out.outputs[rows, 0]
            median = np.median(errors)
            limit = 3.0 * (1.4826 * np.median(np.abs(errors - median)))  # 3 sigma, from the MAD
            errors = np.clip(errors, median - limit, median + limit) if limit > 0.0 else errors
            n_rows, variance = len(rows), float(errors.var(ddof=1)) if len(rows) > 1 else 0.0
            level_variances.append(errors.mean() ** 2 - variance / n_rows)
            noise_variances.append(variance)
            deviations = x - x.mean()
            sum_of_squares = float(deviations @ deviations)
            if n_rows >= 2 * MIN_ROWS and sum_of_squares > 0.0:
                slope = float(deviations @ errors) / sum_of_squares
                residuals = errors - errors.mean() - slope * deviations
                sampling_variance = float(residuals @ residuals) / (n_rows - 2) / sum_of_squares
                slope_variances.append(slope**2 - sampling_variance)
        noise_variance, spread = float(np.mean(noise_variances)), Spread.learn(held_out)
        if len(domain_rows) < 2:  # differences between sites are unknown: use the noise variance
            return cls(center, noise_variance, 0.0, noise_variance, spread)
        level_variance = max(0.0, float(np.mean(level_variances)))
        slope_variance = max(0.0, float(np.mean(slope_variances))) if slope_variances else 0.0
        return cls(center, level_variance, slope_variance, noise_variance, spread)

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

    def apply(self, outputs: Array, correction: Array) -> Array:
        """Return corrected outputs."""
        level, slope = correction
        return outputs + level + slope * (outputs - self.centre)


@dataclass(frozen=True)
class ClassPrior:
    """Normal prior for biases, which sum to 0 and are added to log-probabilities of classes.

    The scale of the prior is chosen on source domains that are treated as new sites. If decisions
    divide probabilities by class shares (``relative``), biases are fitted after probabilities are
    adapted to the shares at the site. Without this step, biases would adapt to these shares, and
    reduce balanced accuracy.
    """

    scale: float  #: prior standard deviation of a bias
    shares: Array  #: class shares, averaged over source domains
    balanced: bool  #: whether classes had equal weights in the fit; only in older files
    spread: Spread
    relative: bool = False

    @classmethod
    def learn(cls, held_out: SourceOutputs) -> ClassPrior:
        """Learn the prior from held-out probabilities."""
        return cls.learn_without(held_out, [None])[0]

    @classmethod
    def learn_without(
        cls, held_out: SourceOutputs, excluded_codes: Sequence[int | None]
    ) -> list[ClassPrior]:
        """Return a prior for each excluded domain (None excludes none), learned from the others."""
        n_classes, relative = held_out.outputs.shape[1], held_out.relative
        log_outputs = replace(held_out, outputs=smooth_logs(held_out.outputs))
        rows_by_domain = held_out.usable_rows_by_domain()
        codes, domain_rows = np.array(list(rows_by_domain)), list(rows_by_domain.values())
        shares = np.array(
            [np.bincount(held_out.y[rows], minlength=n_classes) / len(rows) for rows in domain_rows]
        )
        mean_shares = _make_positive(shares.mean(axis=0))
        prior = cls(0.0, mean_shares, False, Spread.learn(log_outputs), relative)
        if len(codes) < 2:
            return [replace(prior, scale=DEFAULT_SCALE)] * len(excluded_codes)
        rng = np.random.default_rng(0)
        losses = np.zeros((len(codes), len(BIAS_SCALES)))
        for i, rows in enumerate(domain_rows):
            logs, y = log_outputs.outputs[rows], held_out.y[rows]
            n_labels = min(COMPARED_LABELS, len(rows) // 2)
            if not n_labels:
                continue
            orders = rng.permuted(np.tile(np.arange(len(rows)), (COMPARED_DRAWS, 1)), axis=1)
            labelled_rows, scored_rows = orders[:, :n_labels], orders[:, n_labels:]
            y_scored = y[scored_rows]
            scored_logs = logs[scored_rows] - (np.log(mean_shares) if relative else 0.0)
            for j, scale in enumerate(BIAS_SCALES):
                biases = replace(prior, scale=scale)._biases(logs[labelled_rows], y[labelled_rows])
                log_p = log_softmax(scored_logs + biases[:, None], axis=2)
                row_losses = -np.take_along_axis(log_p, y_scored[:, :, None], axis=2)[:, :, 0]
                class_losses = [row_losses[y_scored == k].mean() for k in np.unique(y_scored)]
                losses[i, j] = np.mean(class_losses) if relative else row_losses.mean()
        priors = []
        for code in excluded_codes:
            other_losses = losses[codes != code]
            excess = other_losses - other_losses[:, [int(other_losses.mean(axis=0).argmin())]]
            limits = TOLERATED_STANDARD_ERRORS * excess.std(axis=0) / np.sqrt(len(other_losses))
            scale = BIAS_SCALES[int(np.flatnonzero(excess.mean(axis=0) <= limits)[0])]
            mean_shares = _make_positive(shares[codes != code].mean(axis=0))
            priors.append(replace(prior, scale=scale, shares=mean_shares))
        return priors

    def corrections(self, outputs: Array, y: Array) -> Array:
        """Return the biases for each draw of labels."""
        return self._biases(smooth_logs(outputs), y)

    def _biases(self, logs: Array, y: Array) -> Array:
        """Compute the most probable biases for each draw by Newton's method with bounded steps."""
        n_draws, n_labels, n_classes = logs.shape
        biases = np.zeros((n_draws, n_classes))
        if self.scale == 0.0 or not n_labels:
            return biases
        weights, indicators = self.spread.weights(logs), np.eye(n_classes)[y]
        if self.balanced or self.relative:
            counts = weights[:, None] * indicators.sum(axis=1) + PRIOR_ROWS * self.shares
            source_shares = self.shares if self.relative else 1.0
            ratios = counts / counts.sum(axis=1, keepdims=True) / source_shares
            logs = logs + np.log(ratios)[:, None]
        penalty, diagonal = self.scale**-2, np.arange(n_classes)
        for _ in range(50):
            p = np.exp(log_softmax(logs + biases[:, None], axis=2))
            gradient = weights[:, None] * (p - indicators).sum(axis=1) + penalty * biases
            hessian = -weights[:, None, None] * np.swapaxes(p, 1, 2) @ p
            hessian[:, diagonal, diagonal] += weights[:, None] * p.sum(axis=1) + penalty
            step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
            largest_step = np.abs(step).max(axis=1, keepdims=True)
            biases -= step * np.minimum(1.0, 2.0 / np.maximum(largest_step, 1e-12))
            if largest_step.max() < 1e-9:
                break
        return biases - biases.mean(axis=1, keepdims=True)

    def apply(self, outputs: Array, correction: Array) -> Array:
        """Return corrected probabilities, which are exactly the outputs if all biases are 0."""
        if not np.any(correction):
            return outputs
        products = outputs * np.exp(correction)
        return np.asarray(products / products.sum(axis=1, keepdims=True))


def smooth_logs(probabilities: Array) -> Array:
    """Return logarithms of probabilities, which are first smoothed so that all are positive."""
    return np.log((1.0 - SMOOTHING) * probabilities + SMOOTHING / probabilities.shape[-1])


def _make_positive(shares: Array) -> Array:
    """Return shares that are all positive and sum to 1."""
    shares = np.maximum(shares, 1e-3)
    return shares / shares.sum()


Prior = LinePrior | ClassPrior


def learn_prior(held_out: SourceOutputs) -> Prior:
    """Return the prior for classes or a continuous target, learned from held-out outputs."""
    return (LinePrior if held_out.outputs.shape[1] == 1 else ClassPrior).learn(held_out)


def leave_one_out_priors(held_out: SourceOutputs, codes: Sequence[int]) -> dict[int, Prior]:
    """Return, for each domain, the prior learned from the other domains."""
    priors: Sequence[Prior]
    if held_out.outputs.shape[1] > 1:
        priors = ClassPrior.learn_without(held_out, codes)
    else:
        masks = [held_out.domain_codes != code for code in codes]
        priors = [LinePrior.learn(held_out.take(m) if m.any() else held_out) for m in masks]
    return dict(zip(codes, priors, strict=True))


@dataclass(frozen=True)
class SiteLabels:
    """Outputs and targets for the labelled rows from a site, in sorted order.

    Outputs are rounded to float32, so that a row has the same outputs in every batch.
    """

    outputs: Array
    y: Array

    @classmethod
    def from_rows(cls, outputs: Array, y: Array) -> Self:
        """Create labels from rows in any order."""
        outputs = outputs.astype(np.float32)
        order = np.lexsort((*outputs.T[::-1], y))
        return cls(outputs[order], y[order])

    def join(self, other: SiteLabels) -> SiteLabels:
        """Return these labels together with further labels from the same site."""
        outputs = np.concatenate([self.outputs, other.outputs])
        return SiteLabels.from_rows(outputs, np.concatenate([self.y, other.y]))

    def __len__(self) -> int:
        return len(self.y)

    def correction(self, prior: Prior) -> Array:
        """Return the correction for outputs at this site."""
        return prior.corrections(self.outputs[None].astype(np.float64), self.y[None])[0]


def label_gain(
    held_out: SourceOutputs, scores: Array, score: Score, scoring: object = None
) -> tuple[Array, Array]:
    """Return expected scores by number of labels, and the number of domains behind each score.

    A row of the first array contains the number of labels, the score and its confidence interval.
    ``scores`` contains each domain's score without labels. Labels are drawn at random and, because
    this is common in practice, from the first rows of a domain; the smaller of the two gains is
    used. A gain compares scores with and without labels on the same rows. Gains are averaged over
    domains with at least twice as many rows as labels.
    """
    rows_by_domain = held_out.rows_by_domain(2 * LABEL_COUNTS[1])
    codes = [*rows_by_domain]
    codes = [codes[i] for i in evenly_spaced(len(codes), MAX_DOMAINS)]
    priors = leave_one_out_priors(held_out, codes)
    gains = np.full((2, len(LABEL_COUNTS), len(codes)), np.nan)
    for i, code in enumerate(codes):
        site, n_rows = held_out.take(rows_by_domain[code]), len(rows_by_domain[code])
        counts = [k for k in LABEL_COUNTS if 2 * k <= n_rows]
        rng, by_content = np.random.default_rng(0), np.lexsort([*site.outputs.T, site.y])
        random_orders = np.array([rng.permutation(by_content) for _ in range(DRAWS)])
        for scheme, orders in enumerate((random_orders, np.arange(n_rows)[None])):
            gains[scheme, : len(counts), i] = _mean_gains(priors[code], site, orders, counts, score)
    is_defined = np.isfinite(gains[0])
    table = np.full((len(LABEL_COUNTS), 4), np.nan)
    table[:, 0] = LABEL_COUNTS
    for j in range(len(LABEL_COUNTS)):
        if not is_defined[j].any() or not np.isfinite(scores).any():
            continue
        scheme = int(np.nanmean(gains[:, j], axis=1).argmin())  # random rows, or the first rows
        mean_gain = float(np.nanmean(gains[scheme, j]))
        # Domains with too few rows for this number of labels get the mean gain of the others.
        site_gains = np.full(len(scores), mean_gain)
        site_gains[codes] = np.where(np.isnan(gains[scheme, j]), mean_gain, gains[scheme, j])
        table[j, 1:] = expected_score((scores + site_gains)[np.isfinite(scores)], 0, scoring)
    return table, is_defined.sum(axis=1)


def _mean_gains(
    prior: Prior, site: SourceOutputs, orders: Array, label_counts: list[int], score: Score
) -> list[float]:
    """Return the mean gain for each number of labels; larger draws contain the smaller ones."""
    scored_rows = orders[:, max(label_counts) :]
    old_scores = [defined_score(score, site.outputs[rows], site.y[rows]) for rows in scored_rows]
    gains = []
    for n_labels in label_counts:
        labelled_rows = orders[:, :n_labels]
        corrections = prior.corrections(site.outputs[labelled_rows], site.y[labelled_rows])
        new_scores = [
            defined_score(score, prior.apply(site.outputs[rows], correction), site.y[rows])
            for rows, correction in zip(scored_rows, corrections, strict=True)
        ]
        differences = np.subtract(new_scores, old_scores) if n_labels else np.zeros(len(old_scores))
        differences = differences[np.isfinite(differences)]
        gains.append(float(differences.mean()) if len(differences) else np.nan)
    return gains


def outputs_score(scoring: Any, classes: Array | None, rule: DecisionRule | None = None) -> Score:
    """Return a function that scores outputs, given targets or class codes; larger is better.

    ``scoring`` is a measure, a scorer or its name; None means balanced accuracy, or the negative
    root mean squared error. ``rule`` predicts classes; None predicts the most probable class.
    """
    name = scoring.name if isinstance(scoring, Measure) else scoring
    if classes is None and name in (None, "neg_root_mean_squared_error"):  # computed many times
        return lambda outputs, y, weights=None: (
            -float(np.sqrt(np.average((outputs[:, 0] - y) ** 2, weights=weights)))
        )
    if classes is not None and name in (None, "balanced_accuracy"):
        predict = partial(np.argmax, axis=1) if rule is None else rule.codes
        return lambda outputs, codes, weights=None: balanced_accuracy(
            codes, predict(outputs) == codes, weights
        )
    measure = scoring
    if not isinstance(measure, Measure):
        measure = choose_measure(scoring, classes, classes is not None)

    def score(outputs: Array, y: Array, weights: Array | None = None) -> float:
        scored = scored_outputs(outputs, y, classes, rule, weights)
        return float(measure.score_outputs(classes, scored))

    return score


def scored_outputs(
    outputs: Array,
    y: Array,
    classes: Array | None,
    rule: DecisionRule | None,
    weights: Array | None = None,
) -> Outputs:
    """Return outputs and targets (or class codes) in the form that scorers accept."""
    if classes is None:
        return Outputs(y, outputs[:, 0], weight=weights)
    codes = outputs.argmax(axis=1) if rule is None else rule.codes(outputs)
    return Outputs(classes[y], classes[codes], outputs, weight=weights)


def domain_scores(held_out: SourceOutputs, score: Score, n_domains: int) -> Array:
    """Return the score of each domain's held-out outputs; NaN if it is not defined."""
    scores = np.full(n_domains, np.nan)
    for code, rows in held_out.rows_by_domain().items():
        site = held_out.take(rows)
        scores[code] = defined_score(score, site.outputs, site.y, site.weights)
    return scores


@dataclass(frozen=True)
class SiteQuantiles(Thresholds):
    """Thresholds for prediction sets and intervals at a site with labels.

    Each source domain is treated as a new site: some of its rows, as many as there are labels, are
    used to correct the outputs, and the rest of its rows are scored. If there are too few domains
    for a coverage but enough labels, the site's labelled rows are scored instead, after each is
    corrected with labels of other rows. This depends only on the numbers of domains and labels.
    """

    domains: DomainQuantiles
    labels: Array  #: nonconformity scores of the labelled rows, ascending

    @classmethod
    def from_labels(
        cls, held_out: SourceOutputs, prior: Prior, labels: SiteLabels
    ) -> SiteQuantiles:
        """Compute the scores for a site with these labels."""
        rows_by_domain = held_out.rows_by_domain()
        priors = leave_one_out_priors(held_out, list(rows_by_domain))
        rng = np.random.default_rng(0)
        scores, codes = [], []
        for code, rows in rows_by_domain.items():
            outputs, y = held_out.outputs[rows], held_out.y[rows]
            n_drawn = min(len(labels), len(y) // 2)
            for _ in range(CALIBRATION_DRAWS):
                order = rng.permutation(len(y))
                drawn_rows, scored_rows = order[:n_drawn], order[n_drawn:]
                scores.append(_corrected_scores(priors[code], outputs, y, drawn_rows, scored_rows))
                codes.append(np.full(len(scored_rows), code))
        # Labelled rows form at most 50 groups; each is corrected with labels of the other groups.
        outputs, n_labels = labels.outputs.astype(np.float64), len(labels)
        group_codes = np.arange(n_labels) % 50
        label_scores = np.zeros(n_labels)
        for group_code in np.unique(group_codes):
            is_scored = group_codes == group_code
            group_scores = _corrected_scores(prior, outputs, labels.y, ~is_scored, is_scored)
            label_scores[is_scored] = group_scores
        quantiles = DomainQuantiles.approximately(
            np.concatenate(scores),
            np.concatenate(codes),
            are_probabilities=held_out.outputs.shape[1] > 1,
        )
        return cls(quantiles, np.sort(label_scores))

    def threshold(self, coverage: float, *, warn: bool = False) -> float:
        """Return the threshold for a coverage from domains or, if there are too few, labels."""
        n_labels, n_needed = len(self.labels), needed_domains(coverage)
        if self.domains.n_domains >= n_needed or n_labels < n_needed:
            return self.domains.threshold(coverage, warn=warn)
        # Each label is treated as a domain, so the rank is ceil((n_labels + 1) coverage).
        levels = np.arange(1, n_labels + 1) / (n_labels + 1.0) + TOLERANCE / 2
        return DomainQuantiles(self.labels, levels, n_labels).threshold(coverage, warn=warn)


def _corrected_scores(
    prior: Prior, outputs: Array, y: Array, labelled_rows: Array, scored_rows: Array
) -> Array:
    """Return nonconformity scores of ``scored_rows`` after correction with ``labelled_rows``."""
    correction = prior.corrections(outputs[labelled_rows][None], y[labelled_rows][None])[0]
    return nonconformity(prior.apply(outputs[scored_rows], correction), y[scored_rows])
