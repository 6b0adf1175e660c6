"""Scores and weights of members on held-out domains, and checks whether context can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from domainwise.base.arrays import Array
from domainwise.estimators.adaptation.corrections import SourceOutputs
from domainwise.estimators.adaptation.site import domain_scores, outputs_score
from domainwise.held_out.calibration.curves import Curve, equal_weights, fit_curve
from domainwise.held_out.calibration.decisions import DecisionRule
from domainwise.held_out.folds import Split, draw_rows
from domainwise.held_out.scoring.predictions import HeldOut
from domainwise.held_out.search.driver import outputs_by_row
from domainwise.held_out.search.scores import Outcome, outputs, row_losses

#: Lower bound for the softmax temperature of member weights: a loss that is 4 % larger.
TEMPERATURE = 0.02
#: Members that are worse than the best one by more than this many standard errors are dropped.
MAX_DEFICIT = 2.0
#: Lower bounds for losses and for probabilities before logarithms are taken.
MIN_LOSS, MIN_PROBABILITY = 1e-12, 1e-6
#: Shares of the largest distance by which held-out predictions leave the range of other domains'
#: targets, to choose from for the bounds of predictions.
STRETCHES = (0.0, 0.25, 0.5, 1.0)
#: Prior weights of members without context and of members with context.
PRIOR = (0.6, 0.4)
#: The candidates of a member are compared on at most as many rows as give this number of outputs,
#: but on at least this number of rows: the more candidates, the fewer rows.
COMPARED_OUTPUTS, COMPARED_ROWS = 160_000, 2000
#: Maximum number of groups of held-out domains for member types that are slow to fit.
EXPENSIVE_SPLITS = 5
#: Minimum number of rows for a class to count as present in a domain.
MIN_CLASS_ROWS = 5


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
    scoring: Any
    mean: float = 0.0  #: of a continuous target before it was standardized
    deviation: float = 1.0
    rule: DecisionRule | None = None  #: how probabilities are converted into classes
    weights: Array | None = None  #: the weight of each row; None without weights

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a continuous target."""
        return 0 if self.classes is None else len(self.classes)

    def outcome(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> Array:
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
            max_rows = max(COMPARED_ROWS, COMPARED_OUTPUTS // len(outcomes), 2 * self.n_domains)
            rows = rows[draw_rows(self.domain_codes[rows], max_rows, 0)]
        score, present_domains = replace(self, rows=rows), np.unique(self.domain_codes[rows])
        row_outputs = (outputs_by_row(split_outputs, test_sets, n) for split_outputs in outcomes)
        scores = np.array([score.selection_scores(o)[present_domains] for o in row_outputs])
        is_defined = np.isfinite(scores).any(axis=0)
        return scores[:, is_defined]

    def selection_scores(self, row_outputs: Array) -> Array:
        """Return the score on each domain by which candidates are selected; larger is better.

        If ``scoring`` is not set, the score is the negative squared error, or the negative log loss
        of calibrated probabilities.
        """
        if self.scoring is not None:
            curve = None if self.classes is None else self.curve(row_outputs)
            return self.scores(row_outputs if curve is None else curve.probabilities(row_outputs))
        rows, domain_codes = self.rows, self.domain_codes[self.rows]
        labels = self.y[rows], self._row_weights, self.n_classes, self._scored_weights
        losses = row_losses(row_outputs[rows], *labels)
        n_present_domains = len(np.unique(domain_codes))
        return -n_present_domains * np.bincount(domain_codes, losses, minlength=self.n_domains)

    @cached_property
    def _row_weights(self) -> Array:
        """Row weights that give domains equal weights."""
        return equal_weights(self.domain_codes[self.rows], sample_weight=self._scored_weights)

    @property
    def _scored_weights(self) -> Array | None:
        """The user's weights of the scored rows."""
        return None if self.weights is None else self.weights[self.rows]

    def take(self, rows: Array) -> HeldOutScore:
        """Return the score for some of the rows, with new indices."""
        scored = np.flatnonzero(np.isin(rows, self.rows))
        weights = None if self.weights is None else self.weights[rows]
        labels: Any = {"y": self.y[rows], "domain_codes": self.domain_codes[rows]}
        return replace(self, **labels, rows=scored, weights=weights)

    def curve(self, row_outputs: Array) -> Curve:
        """Fit the calibration curve for probabilities with the frequencies of source domains."""
        labels, weights = (self.y[self.rows], self._row_weights), self._scored_weights
        return fit_curve(row_outputs[self.rows], *labels, sample_weight=weights)[0]

    def losses(self, predictions: Array) -> Array:
        """Return the mean squared error, or the log loss, on each domain; NaN without rows."""
        y, values, codes = (a[self.rows] for a in (self.y, predictions, self.domain_codes))
        if self.classes is None:
            row_losses = (y - values[:, 0]) ** 2
        else:
            true_class_p = values[np.arange(len(y)), y]
            row_losses = -np.log(np.maximum(true_class_p, MIN_PROBABILITY))
        weights = np.ones(len(y)) if self.weights is None else self.weights[self.rows]
        totals = np.bincount(codes, weights, minlength=self.n_domains)
        sums = np.bincount(codes, weights * row_losses, minlength=self.n_domains)
        return np.asarray(sums / np.where(totals > 0, totals, np.nan))

    def safe_bounds(self, predictions: Array) -> tuple[tuple[float, float], Array]:
        """Return bounds for predictions of a continuous target, and predictions within them.

        Predictions for a held-out domain may leave the range of the other domains' targets. They
        are cut off unless this makes the error on held-out domains larger, and new predictions
        never go farther than held-out ones did.
        """
        y, codes = self.y[self.rows], self.domain_codes[self.rows]
        lows, highs = (-other_maxima(-y, codes)[codes], other_maxima(y, codes)[codes])
        widths = np.maximum(highs - lows, 1e-12)
        values = predictions[self.rows, 0]
        excess = np.maximum(lows - values, values - highs) / widths
        stretches = [share * max(0.0, float(excess.max())) for share in STRETCHES]
        versions = []
        for stretch in stretches:
            bounded = predictions.copy()
            margins = stretch * widths
            bounded[self.rows, 0] = np.clip(values, lows - margins, highs + margins)
            versions.append(bounded)
        errors = [float(np.nanmean(self.losses(version))) for version in versions]
        best = int(np.argmin(np.round(np.array(errors) / (min(errors) or 1.0), 9)))
        margin = stretches[best] * float(np.ptp(y))
        return (float(y.min()) - margin, float(y.max()) + margin), versions[best]

    def mix_predictions(
        self, predictions: dict[str, Array], prior: Any = None
    ) -> tuple[dict[str, float], Array, Array]:
        """Return the weights of members, and their weighted predictions in two versions.

        In the second version, the weights for a domain are computed without this domain.
        """
        losses = np.array([self.losses(p) for p in predictions.values()])
        stacked_predictions = np.stack(list(predictions.values()))
        scored_domains = np.flatnonzero(np.isfinite(losses).all(axis=0))
        losses = losses[:, scored_domains]
        weights = member_weights(losses, prior)
        mixture = np.tensordot(weights, stacked_predictions, 1)
        best = int(losses.mean(axis=1).argmin())
        mixture_losses = np.stack([losses[best], self.losses(mixture)[scored_domains]])
        deficits, errors = paired_deficits(mixture_losses)
        if deficits[1] > errors[1] and deficits[1] > 0:
            weights = np.eye(len(losses))[best]
            mixture = stacked_predictions[best]
        held_out_mixture = mixture.copy()
        for i, domain in enumerate(scored_domains if len(scored_domains) > 1 else []):
            other_weights = member_weights(np.delete(losses, i, axis=1), prior)
            is_in_domain = self.domain_codes == domain
            domain_predictions = stacked_predictions[:, is_in_domain]
            held_out_mixture[is_in_domain] = np.tensordot(other_weights, domain_predictions, 1)
        return dict(zip(predictions, weights.tolist(), strict=True)), mixture, held_out_mixture

    def source_outputs(self, predictions: Array) -> SourceOutputs:
        """Return predictions for the scored rows, on the scale of the target."""
        y, values = (self.on_target_scale(array[self.rows]) for array in (self.y, predictions))
        return SourceOutputs(y, self.domain_codes[self.rows], values, weights=self._scored_weights)

    def held_out(
        self, plain: Array, context: Array | None, member_predictions: dict[str, Array]
    ) -> HeldOut:
        """Return the predictions of the ensemble and of its members, on the scale of the target."""
        convert = self.on_target_scale
        predictions = (convert(plain), None if context is None else convert(context))
        members = {name: convert(p) for name, p in member_predictions.items()}
        arguments = (convert(self.y), self.domain_codes, *predictions, members)
        return HeldOut.from_rows(*arguments, self.rows, self.weights)

    def on_target_scale(self, values: Array) -> Array:
        """Convert a standardized target to its original scale; return other values unchanged."""
        return values if self.classes is not None else self.mean + self.deviation * values

    def scores(self, predictions: Array) -> Array:
        """Return the score on each domain: ``scoring``, balanced accuracy, or negative RMSE.

        Undefined scores are NaN.
        """
        score = outputs_score(self.scoring, self.classes, self.rule)
        scores = domain_scores(self.source_outputs(predictions), score, self.n_domains)
        if self.scoring is not None and np.isnan(scores).all():
            raise ValueError(
                f"scoring={self.scoring!r} is not defined on any held-out domain, perhaps because "
                "each contains only one class. Choose another scorer (scoring), or use "
                "scoring=None."
            )
        return scores


def other_maxima(values: Array, domain_codes: Array) -> Array:
    """Return for each domain code the largest value of all other domains, or of the only domain."""
    maxima = np.full(int(domain_codes.max()) + 1, -np.inf)
    np.maximum.at(maxima, domain_codes, values)
    if np.isfinite(maxima).sum() < 2:
        return maxima
    first, second = np.sort(maxima)[:-3:-1]
    return np.where(np.arange(len(maxima)) == maxima.argmax(), second, first)


def paired_deficits(losses: Array) -> tuple[Array, Array]:
    """Return how much worse each row of losses is than the best one, and the standard errors.

    ``losses`` has shape (n_members, n_domains). The score of a member is minus half the logarithm
    of its mean loss, so that an RMSE that is larger by 1 % is worse by 0.01. Differences between
    members are paired over domains; their standard errors follow from a linear approximation.
    """
    n_domains = losses.shape[1]
    means = np.maximum(losses.mean(axis=1), MIN_LOSS)
    best = int(means.argmin())
    deficits = 0.5 * np.log(means / means[best])
    relative_losses = losses / means[:, None]
    differences = 0.5 * (relative_losses - relative_losses[best])
    if n_domains < 2:
        return deficits, np.zeros(len(losses))
    return deficits, differences.std(axis=1, ddof=1) / np.sqrt(n_domains)


def member_weights(losses: Array, prior: Sequence[float] | None = None) -> Array:
    """Return weights that decrease exponentially with the deficit, in standard errors.

    Members that are clearly worse than the best one are dropped (theory 15). With a prior, which
    already prefers a member, the temperature is the same for all.
    """
    deficits, errors = paired_deficits(losses)
    temperatures = np.maximum(errors, TEMPERATURE) if prior is None else TEMPERATURE
    relative_deficits = deficits / temperatures
    weights = np.where(relative_deficits <= MAX_DEFICIT, np.exp(-relative_deficits), 0.0)
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
