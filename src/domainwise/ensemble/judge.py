"""Predictions for domains left out: which candidates they choose, and how good they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from domainwise.arrays import Array
from domainwise.calibration.curves import Curve, equal_weights, fit_curve
from domainwise.calibration.quantiles import DomainQuantiles
from domainwise.ensemble.weights import (
    balanced_accuracies,
    exponent_scores,
    softened,
    squared_errors,
)
from domainwise.ridge.rules import ClassRule, NumberRule
from domainwise.search.scores import COMPARED_ROWS, row_losses
from domainwise.splits.folds import draw_rows


class ProbabilityRule(ClassRule):
    """Turns probabilities into classes, for scorers: its X are the probabilities."""

    def predict_proba(self, values: Array) -> Array:
        """The probabilities."""
        return values

    def decision_function(self, values: Array) -> Array:
        """Log-odds of the second of two classes, or logarithms of probabilities."""
        logs = np.log(np.maximum(values, 1e-300))
        return np.asarray(logs[:, 1] - logs[:, 0]) if values.shape[1] == 2 else logs


@dataclass(frozen=True)
class Judge:
    """Judges predictions of rows that were made without their domain."""

    y: Array  #: codes of classes, or a continuous target
    classes: Array | None  #: names of the classes
    domains: Array  #: their codes
    n_domains: int
    rows: Array  #: those that have a prediction and count
    sample_weight: Array  #: what a row counts for probabilities, beside that domains count the same
    balanced: bool  #: whether classes count the same for probabilities, too
    scoring: Any
    mean: float = 0.0  #: of a continuous target in the user's unit, in which scores are
    deviation: float = 1.0

    def choice_score(self, values: Array) -> float:
        """What candidates are chosen by, larger is better; the domains count the same.

        Minus the log loss, in which the classes of a domain count the same, of probabilities by
        a curve, or minus the squared error. A scoring that is named is used instead.
        """
        n_classes = 0 if self.classes is None else len(self.classes)
        if self.scoring is None:
            most = max(COMPARED_ROWS, 2 * self.n_domains)
            rows = self.rows[draw_rows(self.domains[self.rows], most, 0)]
            return -float(
                row_losses(values[rows], self.y[rows], self.domains[rows], n_classes).sum()
            )
        predicted = values if self.classes is None else self.curve(values).probabilities(values)
        scores = self.scores(predicted)
        return float(np.nanmean(scores)) if np.isfinite(scores).any() else -np.inf

    def curve(self, values: Array) -> Curve:
        """Curve for probabilities in which classes count as asked."""
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
        """Weights, predictions by them, and each domain's by weights that the others give."""
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
        """How strange targets are: 1 - p of their class, or their distance in the user's unit."""
        y, predicted = self.y[self.rows], predicted[self.rows]
        if self.classes is None:
            scores = self.deviation * np.abs(y - predicted[:, 0])
        else:
            # A class that nothing was learnt about has no column.
            known = np.column_stack([predicted, np.zeros(len(y))])
            scores = 1.0 - known[np.arange(len(y)), y]
        return DomainQuantiles.of(scores, self.domains[self.rows])

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
        for domain in np.unique(self.domains[self.rows]):
            rows = self.rows[self.domains[self.rows] == domain]
            y, values = self.y[rows], predicted[rows]
            if names is None:
                y, values = (self.mean + self.deviation * v for v in (y, values))
            else:
                y = names[y]
            try:
                scores[domain] = scorer(rule, values, y)
            except ValueError:  # one class only, for scores that need two
                continue
        return scores
