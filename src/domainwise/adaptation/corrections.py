"""Corrections of a model's outputs by a few labels, as far as source domains differ (theory 17).

A model is wrong at a new site in a systematic way: its level there, its slope, its class shares.
How much sites differ in this is learnt from *held-out outputs*: outputs for source rows, made by a
model that was fitted without their domain. Both priors below have the same verbs: ``learn``,
``corrections`` (from the outputs and targets of labelled rows), ``apply`` and ``strangeness``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import log_softmax
from scipy.stats import chi2

from domainwise.arrays import Array

#: Probabilities are mixed with this share of the uniform distribution: trees give exact zeros.
SMOOTHING = 0.01
#: Rows that the class shares of the sources count for, beside the labels.
PRIOR_ROWS = 10.0
#: Prior standard deviations that are tried for the bias of a class; 0 adapts nothing.
BIAS_SCALES = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0)
#: A smaller scale is preferred while its loss is within this many standard errors of the least.
TOLERATED_ERRORS = 0.5
#: The scale for a single domain, which does not show how domains differ.
UNKNOWN_SCALE = 0.5
#: Labels, and draws of them, with which scales are compared.
COMPARED_LABELS, COMPARED_DRAWS = 10, 8
#: Rows of a domain below which its statistics are not used, where others have more.
FEWEST_ROWS = 5
#: Labelled rows count in full unless their outputs vary less than this share of random draws does.
SPREAD_QUANTILE = 0.25


@dataclass(frozen=True)
class SourceOutputs:
    """Outputs for source rows by a model that was fitted without their domain.

    ``outputs`` has one column per class (probabilities), or one (values of a continuous target).
    """

    y: Array  #: codes of classes, or values
    domain: Array  #: a code per row
    outputs: Array

    def take(self, rows: Array) -> SourceOutputs:
        """Some of the rows."""
        return SourceOutputs(self.y[rows], self.domain[rows], self.outputs[rows])

    def domains(self, fewest: int = 1) -> Iterator[tuple[int, Array]]:
        """Code and rows of each domain that has at least ``fewest`` rows."""
        for code in np.unique(self.domain):
            rows = np.flatnonzero(self.domain == code)
            if len(rows) >= fewest:
                yield int(code), rows

    def usable(self) -> list[Array]:
        """Rows of the domains with enough of them; of all domains where none has."""
        enough = [rows for _, rows in self.domains(FEWEST_ROWS)]
        return enough or [rows for _, rows in self.domains()]


@dataclass(frozen=True)
class Spread:
    """How much outputs vary inside a domain, so that labels of similar rows count less.

    Ten labels of neighbouring rows hold less information about a site than ten of random rows.
    Such rows are recognised by their outputs, which vary less than those of random rows do in a
    source domain.
    """

    variance: float  #: of the outputs inside a domain, mean over source domains
    lowest: float  #: a low quantile over domains, as a share of it

    @classmethod
    def learn(cls, held_out: SourceOutputs) -> Spread:
        """From held-out outputs."""
        by_domain = [held_out.outputs[rows].var(axis=0).sum() for rows in held_out.usable()]
        mean = float(np.mean(by_domain))
        if mean <= 0.0:
            return cls(0.0, 1.0)
        return cls(mean, float(np.quantile(by_domain, SPREAD_QUANTILE)) / mean)

    def weights(self, outputs: Array) -> Array:
        """Weight of each label, for draws of labelled rows of shape (draws, labels, outputs)."""
        n = outputs.shape[1]
        if n < 2 or self.variance <= 0.0 or self.lowest <= 0.0:
            return np.ones(len(outputs))
        usual = self.lowest * chi2.ppf(SPREAD_QUANTILE, n - 1) / (n - 1)
        share = outputs.var(axis=1, ddof=1).sum(axis=1) / self.variance
        return np.clip(share / usual, 1.0 / n, 1.0)


@dataclass(frozen=True)
class LinePrior:
    """A level and a slope, for a continuous target.

    The corrected value is ``output + level + slope * (output - centre)``. The prior variances of
    both are those of the differences between source domains, less the noise of a mean, and of a
    slope, over the rows of a domain.
    """

    centre: float
    level: float  #: prior variance
    slope: float  #: prior variance
    noise: float  #: variance of a residual inside a domain
    spread: Spread

    n_outputs: ClassVar[int] = 1

    @classmethod
    def learn(cls, held_out: SourceOutputs, **_: Any) -> LinePrior:
        """From held-out outputs; domains count the same."""
        centre = float(np.mean(held_out.outputs))
        means, slopes, noise = [], [], []
        groups = held_out.usable()
        spread = Spread.learn(held_out)
        for rows in groups:
            x = held_out.outputs[rows, 0] - centre
            r = _winsorised(held_out.y[rows] - held_out.outputs[rows, 0])
            n, variance = len(rows), float(r.var(ddof=1)) if len(rows) > 1 else 0.0
            means.append(r.mean() ** 2 - variance / n)
            noise.append(variance)
            deviations = x - x.mean()
            scale = float(deviations @ deviations)
            if n >= 2 * FEWEST_ROWS and scale > 0.0:
                slope = float(deviations @ r) / scale
                rest = r - r.mean() - slope * deviations
                slopes.append(slope**2 - float(rest @ rest) / (n - 2) / scale)
        variance = float(np.mean(noise))
        if len(groups) < 2:  # differences are unknown: a label counts as much as the model
            return cls(centre, variance, 0.0, variance, spread)
        level = max(0.0, float(np.mean(means)))
        return cls(
            centre, level, max(0.0, float(np.mean(slopes))) if slopes else 0.0, variance, spread
        )

    def corrections(self, outputs: Array, y: Array) -> Array:
        """Level and slope by the labels of each draw: posterior means of a Bayesian regression."""
        x, residuals = outputs[:, :, 0] - self.centre, y - outputs[:, :, 0]
        variances = np.array([self.level, self.slope])
        used = np.flatnonzero(variances > 0.0)
        corrections = np.zeros((len(outputs), 2))
        if not len(used) or not outputs.shape[1]:
            return corrections
        design = np.stack([np.ones_like(x), x], axis=2)[:, :, used]
        weights = self.spread.weights(outputs)[:, None, None]
        noise = self.noise or 1e-12 * float(variances[used].max())
        precision = weights * np.swapaxes(design, 1, 2) @ design / noise
        precision += np.diag(1.0 / variances[used])
        moment = weights * np.swapaxes(design, 1, 2) @ residuals[:, :, None] / noise
        corrections[:, used] = np.linalg.solve(precision, moment)[:, :, 0]
        return corrections

    def apply(self, outputs: Array, correction: Array) -> Array:
        """Corrected outputs."""
        level, slope = correction
        return outputs + level + slope * (outputs - self.centre)

    @staticmethod
    def strangeness(outputs: Array, y: Array) -> Array:
        """How far targets are from the outputs."""
        return np.abs(y - outputs[:, 0])


@dataclass(frozen=True)
class ClassPrior:
    """A bias per class on log-probabilities, which sum to 0, with a normal prior around 0.

    The scale of the prior is chosen on source domains that stand in for the new site. With
    ``balanced`` probabilities, in which all classes count the same, labels are compared with
    probabilities times class shares: otherwise the bias would follow the shares, and balanced
    accuracy would suffer.
    """

    scale: float  #: prior standard deviation of a bias
    shares: Array  #: of the classes, mean over source domains
    balanced: bool
    spread: Spread

    @classmethod
    def learn(cls, held_out: SourceOutputs, *, balanced: bool = False, seed: int = 0) -> ClassPrior:
        """From held-out probabilities."""
        return cls.plan(held_out, balanced=balanced, seed=seed).without(None)

    @classmethod
    def plan(cls, held_out: SourceOutputs, *, balanced: bool, seed: int) -> ClassPlan:
        """What :meth:`learn` compares, from which priors without one of the domains follow."""
        n_classes = held_out.outputs.shape[1]
        logs = replace(held_out, outputs=smooth_logs(held_out.outputs))
        groups = logs.usable()
        codes = [held_out.domain[rows[0]] for rows in groups]
        shares = np.array([_shares(held_out.y[rows], n_classes) for rows in groups])
        start = cls(0.0, _positive(shares.mean(axis=0)), balanced, Spread.learn(logs))
        rng = np.random.default_rng(seed)
        losses = np.zeros((len(groups), len(BIAS_SCALES)))
        for i, rows in enumerate(groups):
            outputs, y = logs.outputs[rows], held_out.y[rows]
            n_labels = min(COMPARED_LABELS, len(rows) // 2)
            if not n_labels:
                continue
            draws = rng.permuted(np.tile(np.arange(len(rows)), (COMPARED_DRAWS, 1)), axis=1)
            labelled, rest = draws[:, :n_labels], draws[:, n_labels:]
            for j, scale in enumerate(BIAS_SCALES):
                bias = replace(start, scale=scale)._biases(outputs[labelled], y[labelled])
                losses[i, j] = _log_loss(outputs[rest] + bias[:, None], y[rest], balanced)
        return ClassPlan(start, np.array(codes), shares, losses)

    def corrections(self, outputs: Array, y: Array) -> Array:
        """Biases by the labels of each draw."""
        return self._biases(smooth_logs(outputs), y)

    def _biases(self, logs: Array, y: Array) -> Array:
        n_classes = logs.shape[2]
        if self.scale == 0.0 or not y.shape[1]:
            return np.zeros((len(logs), n_classes))
        weights = self.spread.weights(logs)
        if self.balanced:
            counts = weights[:, None] * np.stack(
                [(y == code).sum(axis=1) for code in range(n_classes)], axis=1
            )
            shares = counts + PRIOR_ROWS * self.shares
            logs = logs + np.log(shares / shares.sum(axis=1, keepdims=True))[:, None]
        return _fit_biases(logs, y, weights, self.scale)

    def apply(self, outputs: Array, correction: Array) -> Array:
        """Corrected probabilities; without a bias they are unchanged, bit by bit."""
        if not np.any(correction):
            return outputs
        weighted = outputs * np.exp(correction)
        return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))

    @staticmethod
    def strangeness(outputs: Array, y: Array) -> Array:
        """1 - p of the class of each row."""
        return 1.0 - outputs[np.arange(len(y)), y]


@dataclass(frozen=True)
class ClassPlan:
    """Losses of every scale on every source domain, from which priors follow."""

    start: ClassPrior
    domains: Array  #: their codes
    shares: Array  #: of the classes, by domain
    losses: Array  #: of each scale, by domain

    def without(self, domain: int | None) -> ClassPrior:
        """The prior learnt from the other domains, or from all if ``domain`` is None."""
        others = self.domains != domain
        if others.sum() < 1 or len(self.domains) < 2:
            return replace(self.start, scale=UNKNOWN_SCALE)
        losses = self.losses[others]
        excess = losses - losses[:, [int(losses.mean(axis=0).argmin())]]
        error = excess.std(axis=0) / np.sqrt(len(losses))
        # The smallest of the scales whose loss is not clearly larger than the best one's.
        best = int(np.flatnonzero(excess.mean(axis=0) <= TOLERATED_ERRORS * error)[0])
        shares = _positive(self.shares[others].mean(axis=0))
        return replace(self.start, scale=BIAS_SCALES[best], shares=shares)


Prior = LinePrior | ClassPrior


@dataclass(frozen=True)
class SiteLabels:
    """Outputs and targets of the labelled rows of a site, whatever their order was.

    Outputs are rounded to single precision, so that a row has the same ones in every batch.
    """

    outputs: Array
    y: Array

    @classmethod
    def sorted(cls, outputs: Array, y: Array) -> Self:
        """From rows in any order."""
        outputs = outputs.astype(np.float32)
        order = np.lexsort((*outputs.T[::-1], y))
        return cls(outputs[order], y[order])

    def joined(self, other: SiteLabels) -> SiteLabels:
        """With further labels."""
        outputs = np.concatenate([self.outputs, other.outputs])
        return SiteLabels.sorted(outputs, np.concatenate([self.y, other.y]))

    def __len__(self) -> int:
        return len(self.y)

    def correction(self, prior: Prior) -> Array:
        """Correction of the outputs for the site."""
        return prior.corrections(self.outputs[None].astype(np.float64), self.y[None])[0]

    def left_out_scores(self, prior: Prior) -> Array:
        """Non-conformity of each label for a model corrected without it; in at most 50 groups."""
        outputs, n = self.outputs.astype(np.float64), len(self)
        groups = np.arange(n) % min(n, 50) if n else np.zeros(0, dtype=np.intp)
        scores = np.zeros(n)
        for group in np.unique(groups):
            inside, others = groups == group, groups != group
            correction = prior.corrections(outputs[None, others], self.y[None, others])[0]
            corrected = prior.apply(outputs[inside], correction)
            scores[inside] = prior.strangeness(corrected, self.y[inside])
        return scores


def smooth_logs(probabilities: Array) -> Array:
    """Logarithms of probabilities, of which none is 0."""
    n_classes = probabilities.shape[-1]
    return np.log((1.0 - SMOOTHING) * probabilities + SMOOTHING / n_classes)


def _fit_biases(logs: Array, y: Array, weights: Array, scale: float) -> Array:
    """Maxima a posteriori, by Newton's method with bounded steps, for several draws at a time."""
    n_draws, _, n_classes = logs.shape
    biases = np.zeros((n_draws, n_classes))
    targets = np.eye(n_classes)[y]
    penalty, diagonal = scale**-2, np.arange(n_classes)
    for _ in range(50):
        p = np.exp(log_softmax(logs + biases[:, None], axis=2))
        gradient = weights[:, None] * (p - targets).sum(axis=1) + penalty * biases
        hessian = -weights[:, None, None] * np.swapaxes(p, 1, 2) @ p
        hessian[:, diagonal, diagonal] += weights[:, None] * p.sum(axis=1) + penalty
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        biases -= step * np.minimum(1.0, 2.0 / np.maximum(longest, 1e-12))
        if longest.max() < 1e-9:
            break
    return biases - biases.mean(axis=1, keepdims=True)


def _log_loss(logs: Array, y: Array, balanced: bool) -> float:
    """Mean over draws; with ``balanced`` the classes of a draw count the same."""
    losses = -np.take_along_axis(log_softmax(logs, axis=2), y[:, :, None], axis=2)[:, :, 0]
    if not balanced:
        return float(losses.mean())
    by_class = [losses[y == code].mean() for code in np.unique(y)]
    return float(np.mean(by_class))


def _shares(y: Array, n_classes: int) -> Array:
    return np.bincount(y, minlength=n_classes)[:n_classes] / len(y)


def _positive(shares: Array) -> Array:
    """Shares of which none is 0."""
    return np.maximum(shares, 1e-3) / np.maximum(shares, 1e-3).sum()


def _winsorised(residuals: Array, reach: float = 3.0) -> Array:
    """Residuals no farther than some robust deviations from their median."""
    middle = np.median(residuals)
    deviation = 1.4826 * np.median(np.abs(residuals - middle))
    if deviation <= 0.0:
        return residuals
    return np.clip(residuals, middle - reach * deviation, middle + reach * deviation)


def priors_without_each(
    held_out: SourceOutputs, domains: Sequence[int], *, classes: bool, **options: Any
) -> dict[int, Prior]:
    """For each domain, the prior learnt from the other domains."""
    if classes:
        plan = ClassPrior.plan(held_out, **options)
        return {code: plan.without(code) for code in domains}
    everything = np.arange(len(held_out.y))
    return {
        code: LinePrior.learn(held_out.take(everything[held_out.domain != code]))
        if np.any(held_out.domain != code)
        else LinePrior.learn(held_out)
        for code in domains
    }
