"""Predictions for held-out domains: scores and weights of members, and when to use context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from domainwise.arrays import Array
from domainwise.calibration.curves import Curve, equal_weights, fit_curve
from domainwise.calibration.quantiles import DomainQuantiles
from domainwise.ridge.scores import ClassRule, NumberRule
from domainwise.scoring.predictions import HeldOut
from domainwise.search.driver import by_row
from domainwise.search.scores import Outcome, outputs, row_losses
from domainwise.splits.folds import draw_rows

#: About one standard deviation of the difference of two members' scores over nine domains: members
#: that are worse by more than chance explains get little weight.
TEMPERATURE = 0.02
#: Prior weights of the members that see rows one by one, and of those that see rows in context.
PRIOR = (0.6, 0.4)
#: Largest number of rows on which candidates of a member are compared.
COMPARED_ROWS = 2000
#: Number of rows that a class needs in a domain to count as present there.
LEAST_ROWS = 5


class ProbabilityRule(ClassRule):
    """Fitted estimator for scorers that turns probabilities, passed as X, into classes."""

    def predict_proba(self, values: Array) -> Array:
        """The probabilities."""
        return values

    def decision_function(self, values: Array) -> Array:
        """Log-odds of the second of two classes, or logarithms of probabilities."""
        logs = np.log(np.maximum(values, 1e-300))
        return np.asarray(logs[:, 1] - logs[:, 0]) if values.shape[1] == 2 else logs


@dataclass(frozen=True)
class HeldOutScore:
    """Scores predictions for rows by members that were fitted without their domain.

    A search can use it as its :class:`~domainwise.search.scores.Score`.
    """

    y: Array  #: codes of classes, or a continuous target
    classes: Array | None  #: names of the classes
    domains: Array  #: domain code of each row
    n_domains: int
    rows: Array  #: indices of the rows that have a prediction and are scored
    sample_weight: Array  #: weights of rows for calibration, on top of equal weights of domains
    balanced: bool  #: whether classes have equal weights for calibration, too
    scoring: Any
    mean: float = 0.0  #: of a continuous target; scores are in the user's unit
    deviation: float = 1.0

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a continuous target."""
        return 0 if self.classes is None else len(self.classes)

    def outcome(self, model: Any, X: Any, y: Array) -> Array:
        """Outputs of a candidate for rows that it was fitted without."""
        return outputs(model, X, self.n_classes).astype(np.float32)

    def table(self, outcomes: Sequence[Sequence[Outcome]], tests: Sequence[Array]) -> Array:
        """Scores of shape (candidates, domains), from outputs averaged by row over all splits.

        Candidates are chosen by their mean score.
        """
        rows, n = np.intersect1d(self.rows, np.concatenate(tests)), len(self.y)
        if not len(rows):  # the splits of a round may hold out other rows than those that count
            return np.zeros((len(outcomes), 0))
        if self.scoring is None:
            rows = rows[draw_rows(self.domains[rows], max(COMPARED_ROWS, 2 * self.n_domains), 0)]
        part, present = replace(self, rows=rows), np.unique(self.domains[rows])
        scores = np.array(
            [part.choice(by_row(candidate, tests, n))[present] for candidate in outcomes]
        )
        defined = np.isfinite(scores).any(axis=0)
        return scores[:, defined]

    def choice(self, values: Array) -> Array:
        """Score of each domain by which candidates are chosen; larger is better.

        Minus the log loss of calibrated probabilities, in which the classes of a domain have equal
        weights, or minus the squared error. If ``scoring`` is set, it is used instead.
        """
        if self.scoring is not None:
            curve = None if self.classes is None else self.curve(values)
            return self.scores(values if curve is None else curve.probabilities(values))
        rows, domains = self.rows, self.domains[self.rows]
        losses = row_losses(values[rows], self.y[rows], domains, self.n_classes)
        present = len(np.unique(domains))
        return -present * np.bincount(domains, losses, minlength=self.n_domains)

    def curve(self, values: Array) -> Curve:
        """Calibration curve for probabilities, with the class weights of the estimator."""
        y, domains = self.y[self.rows], self.domains[self.rows]
        if self.balanced:
            weights = equal_weights(domains, y)
        else:
            weights = equal_weights(domains) * self.sample_weight[self.rows]
        return fit_curve(values[self.rows], y, weights)[0]

    def quality(self, predicted: Array) -> Array:
        """Balanced accuracies of probabilities, or squared errors of values, by domain."""
        y, domains = self.y[self.rows], self.domains[self.rows]
        if self.classes is None:
            return squared_errors(y, predicted[self.rows, 0], domains, self.n_domains)
        hard = predicted[self.rows].argmax(axis=1)
        return balanced_accuracies(y, hard, domains, self.n_domains)

    def mixed(
        self, predicted: dict[str, Array], prior: Any = None
    ) -> tuple[dict[str, float], Array, Array]:
        """Weights, weighted predictions, and these with weights from the other domains only."""
        quality = np.array([self.quality(p) for p in predicted.values()])
        values = np.stack(list(predicted.values()))

        def weights_by(quality: Array) -> Array:
            return softened(exponent_scores(quality, errors=self.classes is None), prior)

        weights = weights_by(quality)
        mix = np.tensordot(weights, values, 1)
        without = mix.copy()
        present = np.flatnonzero(np.isfinite(quality).all(axis=0))
        for domain in present if len(present) > 1 else []:
            others = weights_by(quality[:, present[present != domain]])
            rows = self.domains == domain
            without[rows] = np.tensordot(others, values[:, rows], 1)
        return dict(zip(predicted, weights.tolist(), strict=True)), mix, without

    def quantiles(self, predicted: Array) -> DomainQuantiles:
        """Quantiles of nonconformity scores: 1 - p of the true class, or the absolute error."""
        y, predicted = self.y[self.rows], predicted[self.rows]
        if self.classes is None:
            scores = self.deviation * np.abs(y - predicted[:, 0])
        else:
            # A class that was not seen in fit has no column.
            padded = np.column_stack([predicted, np.zeros(len(y))])
            scores = 1.0 - padded[np.arange(len(y)), y]
        return DomainQuantiles.of(scores, self.domains[self.rows])

    def held_out(self, plain: Array, context: Array | None, members: dict[str, Array]) -> HeldOut:
        """Predictions of the ensemble and of its members, in the user's unit."""
        y, values = self.in_unit(self.y), [self.in_unit(v) for v in members.values()]
        named = dict(zip(members, values, strict=True))
        predictions = (self.in_unit(plain), None if context is None else self.in_unit(context))
        return HeldOut.of(y, self.domains, *predictions, named, rows=self.rows)

    def in_unit(self, values: Array) -> Array:
        """Values of a continuous target in the user's unit; probabilities and codes unchanged."""
        return values if self.classes is not None else self.mean + self.deviation * values

    def scores(self, predicted: Array) -> Array:
        """Score of each domain: the scoring, balanced accuracy, or negative RMSE.

        NaN where it is not defined.
        """
        if self.scoring is None:
            quality = self.quality(predicted)
            return quality if self.classes is not None else -self.deviation * np.sqrt(quality)
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        names = self.classes
        rule = NumberRule() if names is None else ProbabilityRule(names)
        scores = np.full(self.n_domains, np.nan)
        reason = None
        for domain in np.unique(self.domains[self.rows]):
            rows = self.rows[self.domains[self.rows] == domain]
            y, values = self.in_unit(self.y[rows]), self.in_unit(predicted[rows])
            y = y if names is None else names[y]
            try:
                scores[domain] = scorer(rule, values, y)
            except ValueError as error:  # only one class, for scores that need two
                reason = error
        if reason is not None and np.isnan(scores).all():
            raise ValueError(
                f"scoring={self.scoring!r} is not defined on any held-out domain ({reason}). "
                "Choose another scoring, or leave it at None"
            ) from reason
        return scores


def balanced_accuracies(codes: Array, predicted: Array, domains: Array, n_domains: int) -> Array:
    """Balanced accuracy in each domain, over the classes it has; NaN where there are no rows."""
    weights = equal_weights(domains, codes)
    total = np.bincount(domains, weights, minlength=n_domains)
    hits = np.bincount(domains, weights * (predicted == codes), minlength=n_domains)
    return np.asarray(hits / np.where(total > 0, total, np.nan))


def squared_errors(y: Array, predicted: Array, domains: Array, n_domains: int) -> Array:
    """Mean squared error in each domain; NaN where there are no rows."""
    count = np.bincount(domains, minlength=n_domains)
    total = np.bincount(domains, (y - predicted) ** 2, minlength=n_domains)
    return np.asarray(total / np.where(count > 0, count, np.nan))


def exponent_scores(quality: Array, *, errors: bool) -> Array:
    """Scores that set members' weights: mean accuracy, or minus half the log of the mean error.

    ``quality`` has shape (n_members, n_domains). One per cent of root mean squared error counts as
    one point of accuracy. Errors are relative to the target's variance, and may be 0.
    """
    mean = np.nanmean(quality, axis=1)
    return np.asarray(-0.5 * np.log(np.maximum(mean, 1e-12)) if errors else mean)


def softened(scores: Array, prior: Sequence[float] | None = None) -> Array:
    """Weights proportional to ``exp(score / temperature)``, times their prior if there is one."""
    relative = np.exp((scores - scores.max()) / TEMPERATURE)
    relative = relative if prior is None else relative * np.asarray(prior)
    return np.asarray(relative / relative.sum())


# When the statistics of a domain may be used: not if they reveal the class.


def mixed_domains(codes: Array, domains: Array, n_domains: int) -> Array:
    """Domains that hold at least two classes with enough rows each.

    Where classes occur in only one domain, a domain's mean reveals the class: members that see it
    score well on held-out domains of the same kind, and fail on a domain with several classes.
    """
    table = _counts(domains, n_domains, codes, int(codes.max()) + 1)
    return np.flatnonzero((table >= LEAST_ROWS).sum(axis=1) >= 2)


def _counts(domains: Array, n_domains: int, codes: Array, n_classes: int) -> Array:
    cells = np.bincount(domains * n_classes + codes, minlength=n_domains * n_classes)
    return cells.reshape(n_domains, n_classes)


def class_shares(probabilities: Array, domains: Array, n_domains: int) -> Array:
    """Shares of predicted classes in each domain, of shape (n_domains, n_classes)."""
    table = _counts(domains, n_domains, probabilities.argmax(axis=1), probabilities.shape[1])
    return np.asarray(table / np.maximum(table.sum(axis=1, keepdims=True), 1.0))


@dataclass(frozen=True)
class ShareRange:
    """Range of the shares of predicted classes among held-out source domains."""

    lowest: Array  #: of each class
    highest: Array
    n_domains: int  #: number of domains that the range was computed from

    @classmethod
    def of_sources(cls, probabilities: Array, domains: Array, included: Array) -> ShareRange:
        """Range of predictions for held-out source domains, over those that are ``included``."""
        shares = class_shares(probabilities, domains, int(included.max()) + 1)[included]
        return cls(shares.min(axis=0), shares.max(axis=0), len(included))

    def left_by(self, shares: Array, counts: Array) -> Array:
        """Whether the shares of each domain lie outside the range.

        Shares of few rows are noisy, and a new domain may well lie slightly outside the range of a
        few: the range is widened by two standard errors, and by the mean distance of neighbours in
        it. ``counts`` are the numbers of rows of the domains.
        """
        margin = (self.highest - self.lowest) / max(1, self.n_domains - 1)
        rows = np.maximum(counts, 1)[:, None]

        def error(share: Array) -> Array:
            # With one observation added to either side a share is never 0 or 1.
            likely = (share * rows + 1) / (rows + 2)
            return np.asarray(2 * np.sqrt(likely * (1 - likely) / rows))

        low, high = self.lowest - margin, self.highest + margin
        outside = (shares < low - error(self.lowest)) | (shares > high + error(self.highest))
        return np.asarray(outside.any(axis=1))
