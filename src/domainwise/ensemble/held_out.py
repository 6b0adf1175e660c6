"""Scores and weights of members on held-out domains, and checks whether context can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from domainwise.arrays import Array
from domainwise.calibration.curves import Curve, equal_weights, fit_curve
from domainwise.calibration.quantiles import DomainQuantiles
from domainwise.ridge.scores import ClassRule, NumberRule
from domainwise.scoring.predictions import HeldOut
from domainwise.search.driver import outputs_by_row
from domainwise.search.scores import Outcome, outputs, row_losses
from domainwise.splits.folds import Split, draw_rows

#: Softmax temperature of member weights. It is about one standard deviation of the difference
#: between the scores of two members on nine domains, so only clearly worse members get low weights.
TEMPERATURE = 0.02
#: Prior weights of members without context and of members with context.
PRIOR = (0.6, 0.4)
#: Maximum number of rows on which the candidates of a member are compared.
COMPARED_ROWS = 2000
#: Maximum number of groups of held-out domains for member types that are slow to fit.
EXPENSIVE_SPLITS = 5
#: Minimum number of rows for a class to count as present in a domain.
MIN_CLASS_ROWS = 5


class ProbabilityRule(ClassRule):
    """Fitted estimator that scorers call; it converts probabilities, passed as X, into classes."""

    def predict_proba(self, values: Array) -> Array:
        """Return the probabilities."""
        return values

    def decision_function(self, values: Array) -> Array:
        """Return the log-odds of the second of two classes, or logarithms of probabilities."""
        log_p = np.log(np.maximum(values, 1e-300))
        return np.asarray(log_p[:, 1] - log_p[:, 0]) if values.shape[1] == 2 else log_p


@dataclass(frozen=True)
class HeldOutScore:
    """Score of predictions for held-out rows, by members that were fitted without them.

    Searches use it as their :class:`~domainwise.search.scores.Score`.
    """

    y: Array  #: class codes, or a standardized continuous target
    classes: Array | None  #: names of the classes
    domains: Array  #: domain code of each row
    n_domains: int
    rows: Array  #: indices of the rows that are predicted and scored
    sample_weight: Array  #: row weights in calibration, multiplied by equal weights for domains
    balanced: bool  #: whether classes also have equal weights in calibration
    scoring: Any
    mean: float = 0.0  #: of a continuous target before it was standardized
    deviation: float = 1.0

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a continuous target."""
        return 0 if self.classes is None else len(self.classes)

    def outcome(self, model: Any, X: Any, y: Array) -> Array:
        """Return the outputs of a candidate for held-out rows."""
        return outputs(model, X, self.n_classes).astype(np.float32)

    def table(self, outcomes: Sequence[Sequence[Outcome]], tests: Sequence[Array]) -> Array:
        """Return scores of shape (candidates, domains), from the mean output of each row.

        The search selects candidates by their mean score.
        """
        rows, n = np.intersect1d(self.rows, np.concatenate(tests)), len(self.y)
        if not len(rows):  # the splits of a round may hold out none of the scored rows
            return np.zeros((len(outcomes), 0))
        if self.scoring is None:
            rows = rows[draw_rows(self.domains[rows], max(COMPARED_ROWS, 2 * self.n_domains), 0)]
        subset, domains = replace(self, rows=rows), np.unique(self.domains[rows])
        scores = np.array(
            [subset.selection_scores(outputs_by_row(o, tests, n))[domains] for o in outcomes]
        )
        is_defined = np.isfinite(scores).any(axis=0)
        return scores[:, is_defined]

    def selection_scores(self, values: Array) -> Array:
        """Return the score on each domain by which candidates are selected; larger is better.

        It is ``scoring``, if set. Otherwise it is the negative squared error, or the negative log
        loss of calibrated probabilities, with equal weights for the classes of a domain.
        """
        if self.scoring is not None:
            curve = None if self.classes is None else self.curve(values)
            return self.scores(values if curve is None else curve.probabilities(values))
        rows, domains = self.rows, self.domains[self.rows]
        losses = row_losses(values[rows], self.y[rows], self._row_weights, self.n_classes)
        n_present = len(np.unique(domains))
        return -n_present * np.bincount(domains, losses, minlength=self.n_domains)

    @cached_property
    def _row_weights(self) -> Array:
        """Row weights that give domains, and the classes within a domain, equal weights."""
        classes = None if self.classes is None else self.y[self.rows]
        return equal_weights(self.domains[self.rows], classes)

    def curve(self, values: Array) -> Curve:
        """Fit the calibration curve for probabilities, with the class weights of the estimator."""
        y, domains = self.y[self.rows], self.domains[self.rows]
        if self.balanced:
            weights = equal_weights(domains, y)
        else:
            weights = equal_weights(domains) * self.sample_weight[self.rows]
        return fit_curve(values[self.rows], y, weights)[0]

    def accuracy_or_error(self, predicted: Array) -> Array:
        """Return the balanced accuracy or mean squared error on each domain."""
        y, domains = self.y[self.rows], self.domains[self.rows]
        if self.classes is None:
            return squared_errors(y, predicted[self.rows, 0], domains, self.n_domains)
        codes = predicted[self.rows].argmax(axis=1)
        return balanced_accuracies(y, codes, domains, self.n_domains)

    def mix_predictions(
        self, predicted: dict[str, Array], prior: Any = None
    ) -> tuple[dict[str, float], Array, Array]:
        """Return the weights of members, and their weighted predictions in two versions.

        In the second version, the weights for a domain are computed without this domain.
        """
        metrics = np.array([self.accuracy_or_error(p) for p in predicted.values()])
        values = np.stack(list(predicted.values()))

        def weights_by(metrics: Array) -> Array:
            return softmax_weights(exponent_scores(metrics, errors=self.classes is None), prior)

        weights = weights_by(metrics)
        mix = np.tensordot(weights, values, 1)
        held_out_mix = mix.copy()
        present = np.flatnonzero(np.isfinite(metrics).all(axis=0))
        for domain in present if len(present) > 1 else []:
            held_out_weights = weights_by(metrics[:, present[present != domain]])
            is_in_domain = self.domains == domain
            held_out_mix[is_in_domain] = np.tensordot(held_out_weights, values[:, is_in_domain], 1)
        return dict(zip(predicted, weights.tolist(), strict=True)), mix, held_out_mix

    def quantiles(self, predicted: Array) -> DomainQuantiles:
        """Return quantiles of nonconformity scores: 1 - p(true class), or absolute errors."""
        y, predicted = self.y[self.rows], predicted[self.rows]
        if self.classes is None:
            scores = self.deviation * np.abs(y - predicted[:, 0])
        else:
            # A class that was not seen in fit has the last code and the probability 0.
            padded = np.column_stack([predicted, np.zeros(len(y))])
            scores = 1.0 - padded[np.arange(len(y)), y]
        return DomainQuantiles.from_scores(scores, self.domains[self.rows])

    def held_out(self, plain: Array, context: Array | None, members: dict[str, Array]) -> HeldOut:
        """Return predictions of the ensemble and of its members, in the unit of the target."""
        convert = self.in_target_unit
        predictions = (convert(plain), None if context is None else convert(context))
        members = {name: convert(values) for name, values in members.items()}
        return HeldOut.from_rows(
            convert(self.y), self.domains, *predictions, members, rows=self.rows
        )

    def in_target_unit(self, values: Array) -> Array:
        """Convert a standardized target to its unit; do not change probabilities or codes."""
        return values if self.classes is not None else self.mean + self.deviation * values

    def scores(self, predicted: Array) -> Array:
        """Return the score on each domain: ``scoring``, balanced accuracy, or negative RMSE.

        Scores that are not defined are NaN.
        """
        if self.scoring is None:
            values = self.accuracy_or_error(predicted)
            return values if self.classes is not None else -self.deviation * np.sqrt(values)
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        names = self.classes
        rule = NumberRule() if names is None else ProbabilityRule(names)
        scores = np.full(self.n_domains, np.nan)
        reason = None
        for domain in np.unique(self.domains[self.rows]):
            rows = self.rows[self.domains[self.rows] == domain]
            y, values = self.in_target_unit(self.y[rows]), self.in_target_unit(predicted[rows])
            y = y if names is None else names[y]
            try:
                scores[domain] = scorer(rule, values, y)
            except ValueError as error:  # such as only one class if the score requires two
                reason = error
        if reason is not None and np.isnan(scores).all():
            raise ValueError(
                f"scoring={self.scoring!r} is not defined on any held-out domain ({reason}). "
                "Choose another scorer (scoring), or use scoring=None."
            ) from reason
        return scores


def balanced_accuracies(codes: Array, predicted: Array, domains: Array, n_domains: int) -> Array:
    """Return the balanced accuracy on each domain, over its classes; NaN without rows."""
    weights = equal_weights(domains, codes)
    total = np.bincount(domains, weights, minlength=n_domains)
    hits = np.bincount(domains, weights * (predicted == codes), minlength=n_domains)
    return np.asarray(hits / np.where(total > 0, total, np.nan))


def squared_errors(y: Array, predicted: Array, domains: Array, n_domains: int) -> Array:
    """Return the mean squared error on each domain; NaN without rows."""
    count = np.bincount(domains, minlength=n_domains)
    total = np.bincount(domains, (y - predicted) ** 2, minlength=n_domains)
    return np.asarray(total / np.where(count > 0, count, np.nan))


def exponent_scores(metrics: Array, *, errors: bool) -> Array:
    """Return the scores that determine member weights: mean accuracy, or negative log RMSE.

    ``metrics`` has shape (n_members, n_domains). A change of the RMSE by 1 % has the same effect as
    a change of the accuracy by 0.01. Errors are relative to the target's variance, and may be 0.
    """
    mean = np.nanmean(metrics, axis=1)
    return np.asarray(-0.5 * np.log(np.maximum(mean, 1e-12)) if errors else mean)


def softmax_weights(scores: Array, prior: Sequence[float] | None = None) -> Array:
    """Return weights proportional to ``exp(score / temperature)``, and to the prior if given."""
    weights = np.exp((scores - scores.max()) / TEMPERATURE)
    weights = weights if prior is None else weights * np.asarray(prior)
    return np.asarray(weights / weights.sum())


def joined_splits(splits: list[Split], y: Array, classification: bool) -> list[Split]:
    """Join splits into at most ``EXPENSIVE_SPLITS``, unless a training set would have one class."""
    groups = np.array_split(np.arange(len(splits)), min(len(splits), EXPENSIVE_SPLITS))
    new_splits = []
    for group in groups:
        trains, tests = zip(*(splits[i] for i in group), strict=True)
        new_splits.append((reduce(np.intersect1d, trains), np.concatenate(tests)))
    if any(len(np.unique(y[train])) < (2 if classification else 1) for train, _ in new_splits):
        return splits
    return new_splits


def mix(members: dict[str, Array], weights: dict[str, float]) -> Array:
    """Return the weighted sum of the members' outputs; missing weights are 0."""
    return np.asarray(sum(weights.get(name, 0.0) * values for name, values in members.items()))


# Checks whether context can be used; it cannot if the statistics of a domain reveal the class.


def mixed_domains(codes: Array, domains: Array, n_domains: int) -> Array:
    """Return the domains that contain at least two classes with enough rows each.

    If each domain has only one class, the mean of a domain reveals the class. Members with context
    then score well on held-out domains of this kind, but fail on a domain with several classes.
    """
    counts = _class_counts(domains, n_domains, codes, int(codes.max()) + 1)
    return np.flatnonzero((counts >= MIN_CLASS_ROWS).sum(axis=1) >= 2)


def _class_counts(domains: Array, n_domains: int, codes: Array, n_classes: int) -> Array:
    counts = np.bincount(domains * n_classes + codes, minlength=n_domains * n_classes)
    return counts.reshape(n_domains, n_classes)


def class_shares(probabilities: Array, domains: Array, n_domains: int) -> Array:
    """Return the shares of predicted classes in each domain, of shape (n_domains, n_classes)."""
    codes, n_classes = probabilities.argmax(axis=1), probabilities.shape[1]
    counts = _class_counts(domains, n_domains, codes, n_classes)
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))


@dataclass(frozen=True)
class ShareRange:
    """Range of the shares of predicted classes on held-out source domains."""

    lowest: Array  #: lowest share of each class
    highest: Array
    n_domains: int  #: number of domains from which the range was computed

    @classmethod
    def of_sources(cls, probabilities: Array, domains: Array, included: Array) -> ShareRange:
        """Compute the range over the domains ``included``, from their held-out predictions."""
        shares = class_shares(probabilities, domains, int(included.max()) + 1)[included]
        return cls(shares.min(axis=0), shares.max(axis=0), len(included))

    def excludes(self, shares: Array, counts: Array) -> Array:
        """Return whether the shares of each domain are outside the range.

        The range is widened by two standard errors, because shares of few rows are noisy, and by
        the mean distance between neighbouring source domains, because a new domain may be slightly
        outside the range of a few others. ``counts`` contains the number of rows in each domain.
        """
        margin = (self.highest - self.lowest) / max(1, self.n_domains - 1)
        n_rows = np.maximum(counts, 1)[:, None]

        def two_standard_errors(share: Array) -> Array:
            # Two rows are added, one of them in the class, so that a share is never 0 or 1.
            smoothed = (share * n_rows + 1) / (n_rows + 2)
            return np.asarray(2 * np.sqrt(smoothed * (1 - smoothed) / n_rows))

        low, high = self.lowest - margin, self.highest + margin
        is_too_low = shares < low - two_standard_errors(self.lowest)
        is_too_high = shares > high + two_standard_errors(self.highest)
        return np.asarray((is_too_low | is_too_high).any(axis=1))
