"""Scores and weights of members on held-out domains, and checks whether context can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from domainwise.base.arrays import Array
from domainwise.estimators.ridge.scores import ClassRule, NumberRule
from domainwise.held_out.calibration.curves import Curve, equal_weights, fit_curve
from domainwise.held_out.calibration.quantiles import DomainQuantiles
from domainwise.held_out.folds import Split, draw_rows
from domainwise.held_out.scoring.predictions import HeldOut
from domainwise.held_out.search.driver import outputs_by_row
from domainwise.held_out.search.scores import Outcome, outputs, row_losses

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

    def predict_proba(self, probabilities: Array) -> Array:
        """Return the probabilities."""
        return probabilities

    def decision_function(self, probabilities: Array) -> Array:
        """Return the log-odds of the second of two classes, or logarithms of probabilities."""
        log_p = np.log(np.maximum(probabilities, 1e-300))
        return np.asarray(log_p[:, 1] - log_p[:, 0]) if probabilities.shape[1] == 2 else log_p


@dataclass(frozen=True)
class HeldOutScore:
    """Score of predictions for held-out rows, by members that were fitted without them.

    Searches use it as their :class:`~domainwise.held_out.search.scores.Score`.
    """

    y: Array  #: class codes, or a standardized continuous target
    classes: Array | None  #: names of the classes
    domain_codes: Array  #: domain code of each row
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

    def table(self, outcomes: Sequence[Sequence[Outcome]], test_sets: Sequence[Array]) -> Array:
        """Return scores of shape (n_candidates, n_domains), from the mean output of each row.

        The search selects candidates by their mean score.
        """
        rows, n = np.intersect1d(self.rows, np.concatenate(test_sets)), len(self.y)
        if not len(rows):  # a round of the search may hold out none of the scored rows
            return np.zeros((len(outcomes), 0))
        if self.scoring is None:
            max_rows = max(COMPARED_ROWS, 2 * self.n_domains)
            rows = rows[draw_rows(self.domain_codes[rows], max_rows, 0)]
        score, present_domains = replace(self, rows=rows), np.unique(self.domain_codes[rows])
        row_outputs = (outputs_by_row(split_outputs, test_sets, n) for split_outputs in outcomes)
        scores = np.array([score.selection_scores(o)[present_domains] for o in row_outputs])
        is_defined = np.isfinite(scores).any(axis=0)
        return scores[:, is_defined]

    def selection_scores(self, row_outputs: Array) -> Array:
        """Return the score on each domain by which candidates are selected; larger is better.

        If ``scoring`` is not set, the score is the negative squared error, or the negative log loss
        of calibrated probabilities, with equal weights for the classes of a domain.
        """
        if self.scoring is not None:
            curve = None if self.classes is None else self.curve(row_outputs)
            return self.scores(row_outputs if curve is None else curve.probabilities(row_outputs))
        rows, domain_codes = self.rows, self.domain_codes[self.rows]
        losses = row_losses(row_outputs[rows], self.y[rows], self._row_weights, self.n_classes)
        n_present_domains = len(np.unique(domain_codes))
        return -n_present_domains * np.bincount(domain_codes, losses, minlength=self.n_domains)

    @cached_property
    def _row_weights(self) -> Array:
        """Row weights that give domains, and the classes within a domain, equal weights."""
        class_codes = None if self.classes is None else self.y[self.rows]
        return equal_weights(self.domain_codes[self.rows], class_codes)

    def curve(self, row_outputs: Array) -> Curve:
        """Fit the calibration curve for probabilities, with the class weights of the estimator."""
        y, domain_codes = self.y[self.rows], self.domain_codes[self.rows]
        if self.balanced:
            row_weights = equal_weights(domain_codes, y)
        else:
            row_weights = equal_weights(domain_codes) * self.sample_weight[self.rows]
        return fit_curve(row_outputs[self.rows], y, row_weights)[0]

    def accuracy_or_error(self, predictions: Array) -> Array:
        """Return the balanced accuracy or mean squared error on each domain."""
        y, domain_codes = self.y[self.rows], self.domain_codes[self.rows]
        if self.classes is None:
            return squared_errors(y, predictions[self.rows, 0], domain_codes, self.n_domains)
        predicted_codes = predictions[self.rows].argmax(axis=1)
        return balanced_accuracies(y, predicted_codes, domain_codes, self.n_domains)

    def mix_predictions(
        self, predictions: dict[str, Array], prior: Any = None
    ) -> tuple[dict[str, float], Array, Array]:
        """Return the weights of members, and their weighted predictions in two versions.

        In the second version, the weights for a domain are computed without this domain.
        """
        metrics = np.array([self.accuracy_or_error(p) for p in predictions.values()])
        stacked_predictions = np.stack(list(predictions.values()))

        def weigh(metrics: Array) -> Array:
            return softmax_weights(exponent_scores(metrics, are_errors=self.classes is None), prior)

        weights = weigh(metrics)
        mixture = np.tensordot(weights, stacked_predictions, 1)
        held_out_mixture = mixture.copy()
        scored_domains = np.flatnonzero(np.isfinite(metrics).all(axis=0))
        for domain in scored_domains if len(scored_domains) > 1 else []:
            other_weights = weigh(metrics[:, scored_domains[scored_domains != domain]])
            is_in_domain = self.domain_codes == domain
            domain_predictions = stacked_predictions[:, is_in_domain]
            held_out_mixture[is_in_domain] = np.tensordot(other_weights, domain_predictions, 1)
        return dict(zip(predictions, weights.tolist(), strict=True)), mixture, held_out_mixture

    def quantiles(self, predictions: Array, guaranteed: bool = False) -> DomainQuantiles:
        """Return quantiles of nonconformity scores: 1 - p(true class), or absolute errors."""
        y, predictions = self.y[self.rows], predictions[self.rows]
        if self.classes is None:
            scores = self.deviation * np.abs(y - predictions[:, 0])
        else:
            # A class that was not seen in fit has the last code and the probability 0.
            all_probabilities = np.column_stack([predictions, np.zeros(len(y))])
            scores = 1.0 - all_probabilities[np.arange(len(y)), y]
        domain_codes = self.domain_codes[self.rows]
        if guaranteed:
            return DomainQuantiles.from_scores(scores, domain_codes)
        return DomainQuantiles.approximately(
            scores, domain_codes, are_probabilities=self.classes is not None
        )

    def held_out(
        self, plain: Array, context: Array | None, member_predictions: dict[str, Array]
    ) -> HeldOut:
        """Return the predictions of the ensemble and of its members, on the scale of the target."""
        convert = self.on_target_scale
        predictions = (convert(plain), None if context is None else convert(context))
        member_predictions = {name: convert(p) for name, p in member_predictions.items()}
        labels = (convert(self.y), self.domain_codes)
        return HeldOut.from_rows(*labels, *predictions, member_predictions, rows=self.rows)

    def on_target_scale(self, values: Array) -> Array:
        """Convert a standardized target to its original scale; return other values unchanged."""
        return values if self.classes is not None else self.mean + self.deviation * values

    def scores(self, predictions: Array) -> Array:
        """Return the score on each domain: ``scoring``, balanced accuracy, or negative RMSE.

        Undefined scores are NaN.
        """
        if self.scoring is None:
            metrics = self.accuracy_or_error(predictions)
            return metrics if self.classes is not None else -self.deviation * np.sqrt(metrics)
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        class_names = self.classes
        scored_model = NumberRule() if class_names is None else ProbabilityRule(class_names)
        scores = np.full(self.n_domains, np.nan)
        last_error = None
        for code in np.unique(self.domain_codes[self.rows]):
            rows = self.rows[self.domain_codes[self.rows] == code]
            y, domain_predictions = self.y[rows], self.on_target_scale(predictions[rows])
            y = self.on_target_scale(y) if class_names is None else class_names[y]
            try:
                scores[code] = scorer(scored_model, domain_predictions, y)
            except ValueError as error:  # for example if the score requires two classes
                last_error = error
        if last_error is not None and np.isnan(scores).all():
            raise ValueError(
                f"scoring={self.scoring!r} is not defined on any held-out domain ({last_error}). "
                "Choose another scorer (scoring), or use scoring=None."
            ) from last_error
        return scores


def balanced_accuracies(
    class_codes: Array, predicted_codes: Array, domain_codes: Array, n_domains: int
) -> Array:
    """Return each domain's balanced accuracy, over the classes in the domain; NaN without rows."""
    weights = equal_weights(domain_codes, class_codes)
    weight_sums = np.bincount(domain_codes, weights, minlength=n_domains)
    hit_weights = weights * (predicted_codes == class_codes)
    hit_sums = np.bincount(domain_codes, hit_weights, minlength=n_domains)
    return np.asarray(hit_sums / np.where(weight_sums > 0, weight_sums, np.nan))


def squared_errors(y: Array, predictions: Array, domain_codes: Array, n_domains: int) -> Array:
    """Return the mean squared error on each domain; NaN without rows."""
    counts = np.bincount(domain_codes, minlength=n_domains)
    error_sums = np.bincount(domain_codes, (y - predictions) ** 2, minlength=n_domains)
    return np.asarray(error_sums / np.where(counts > 0, counts, np.nan))


def exponent_scores(metrics: Array, *, are_errors: bool) -> Array:
    """Return the scores that determine member weights: mean accuracy, or negative log RMSE.

    ``metrics`` has shape (n_members, n_domains). A change of 1 % in the RMSE has the same effect as
    a change of 0.01 in the accuracy. Errors are relative to the target's variance, and may be 0.
    """
    means = np.nanmean(metrics, axis=1)
    return np.asarray(-0.5 * np.log(np.maximum(means, 1e-12)) if are_errors else means)


def softmax_weights(scores: Array, prior: Sequence[float] | None = None) -> Array:
    """Return weights proportional to ``exp(score / temperature)``, and to the prior if given."""
    weights = np.exp((scores - scores.max()) / TEMPERATURE)
    weights = weights if prior is None else weights * np.asarray(prior)
    return np.asarray(weights / weights.sum())


def joined_splits(splits: list[Split], y: Array, classification: bool) -> list[Split]:
    """Join splits into at most ``EXPENSIVE_SPLITS``, unless a training set would have one class."""
    groups = np.array_split(np.arange(len(splits)), min(len(splits), EXPENSIVE_SPLITS))
    fewer_splits = []
    for group in groups:
        training_sets, test_sets = zip(*(splits[i] for i in group), strict=True)
        fewer_splits.append((reduce(np.intersect1d, training_sets), np.concatenate(test_sets)))
    if any(len(np.unique(y[train])) < (2 if classification else 1) for train, _ in fewer_splits):
        return splits
    return fewer_splits


def mix(outputs_by_member: dict[str, Array], weights: dict[str, float]) -> Array:
    """Return the weighted sum of the members' outputs; missing weights are 0."""
    return np.asarray(sum(weights.get(n, 0.0) * values for n, values in outputs_by_member.items()))


# Checks whether context can be used; it cannot if the statistics of a domain reveal the class.


def mixed_domains(class_codes: Array, domain_codes: Array, n_domains: int) -> Array:
    """Return the domains that contain at least two classes with enough rows each.

    If each domain has only one class, the mean of a domain reveals the class. Members with context
    then score well on held-out domains of this kind, but fail on a domain with several classes.
    """
    counts = _class_counts(domain_codes, n_domains, class_codes, int(class_codes.max()) + 1)
    return np.flatnonzero((counts >= MIN_CLASS_ROWS).sum(axis=1) >= 2)


def _class_counts(domain_codes: Array, n_domains: int, class_codes: Array, n_classes: int) -> Array:
    counts = np.bincount(domain_codes * n_classes + class_codes, minlength=n_domains * n_classes)
    return counts.reshape(n_domains, n_classes)


def class_shares(probabilities: Array, domain_codes: Array, n_domains: int) -> Array:
    """Return the shares of predicted classes in each domain, of shape (n_domains, n_classes)."""
    class_codes, n_classes = probabilities.argmax(axis=1), probabilities.shape[1]
    counts = _class_counts(domain_codes, n_domains, class_codes, n_classes)
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))


@dataclass(frozen=True)
class ShareRange:
    """Range of the shares of predicted classes on held-out source domains."""

    lowest: Array  #: lowest share of each class
    highest: Array
    n_domains: int  #: number of domains from which the range was computed

    @classmethod
    def of_sources(cls, probabilities: Array, domain_codes: Array, domains: Array) -> ShareRange:
        """Compute the range over ``domains`` (codes), from their held-out predictions."""
        shares = class_shares(probabilities, domain_codes, int(domains.max()) + 1)[domains]
        return cls(shares.min(axis=0), shares.max(axis=0), len(domains))

    def excludes(self, shares: Array, domain_sizes: Array) -> Array:
        """Return whether the shares of each domain are outside the range.

        The range is widened by two standard errors, because shares among few rows are noisy, and by
        the mean distance between neighboring source domains, because a new domain may be slightly
        outside the range of the source domains. ``domain_sizes`` are numbers of rows.
        """
        margin = (self.highest - self.lowest) / max(1, self.n_domains - 1)
        n_rows = np.maximum(domain_sizes, 1)[:, None]

        def two_standard_errors(share: Array) -> Array:
            # Two rows are added, one of them in the class, so that a share is never 0 or 1.
            smoothed_share = (share * n_rows + 1) / (n_rows + 2)
            return np.asarray(2 * np.sqrt(smoothed_share * (1 - smoothed_share) / n_rows))

        low, high = self.lowest - margin, self.highest + margin
        is_too_low = shares < low - two_standard_errors(self.lowest)
        is_too_high = shares > high + two_standard_errors(self.highest)
        return np.asarray((is_too_low | is_too_high).any(axis=1))
