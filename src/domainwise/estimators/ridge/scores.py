"""The rows of a ridge search, and scores of its candidates on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from domainwise.base.arrays import Array, to_device_of, to_host
from domainwise.base.inputs import Labels
from domainwise.held_out.calibration.curves import class_columns
from domainwise.held_out.calibration.decisions import MIN_SHARE, DecisionRule, without_class_weights
from domainwise.held_out.scoring.measures import check_task
from domainwise.held_out.scoring.predictions import codes_of
from domainwise.held_out.search.scores import Scorer, quiet_scores


class ClassRule(ClassifierMixin, BaseEstimator):
    """Fitted estimator that scorers call; it converts decision values, passed as X, into classes.

    Values of indicators -1 and 1 estimate probabilities, from which ``rule`` predicts classes. If
    classes had ``weights`` in the fit, these probabilities are divided by them. With
    ``only_classes=True``, values are not estimates, and there is no ``decision_function``.
    """

    def __init__(
        self,
        classes: Any = None,
        rule: DecisionRule | None = None,
        weights: Any = 1.0,
        only_classes: bool = False,
    ) -> None:
        self.classes = classes
        self.rule = rule
        self.weights = weights
        self.only_classes = only_classes

    @property
    def classes_(self) -> Array:
        """Classes, in the order of the columns."""
        return np.asarray(self.classes)

    def codes(self, values: Array) -> Array:
        """Return class codes."""
        values = class_columns(values)
        if self.rule is None or self.only_classes:
            return np.asarray(values.argmax(axis=1))
        estimates = np.clip((1.0 + values) / 2.0, MIN_SHARE, None)
        return self.rule.codes(without_class_weights(estimates, self.weights))

    def predict(self, values: Array) -> Array:
        """Return the predicted classes."""
        return self.classes_[self.codes(values)]

    @available_if(lambda self: not self.only_classes)
    def decision_function(self, values: Array) -> Array:
        """Return the values; a single column becomes one-dimensional."""
        return values[:, 0] if values.shape[1] == 1 else values


class NumberRule(RegressorMixin, BaseEstimator):
    """Fitted estimator that scorers call; it returns the predicted values, passed as X."""

    def predict(self, values: Array) -> Array:
        """Return the values; a single column becomes one-dimensional."""
        return values[:, 0] if values.shape[1] == 1 else values


def class_targets(n_classes: int) -> Array:
    """Return each class's targets (-1 or 1): one column per class, but only one for two classes."""
    if n_classes == 2:
        return np.array([[-1.0], [1.0]])
    return 2.0 * np.eye(n_classes) - 1.0


@dataclass(frozen=True)
class Rows:
    """Training rows and their labels."""

    X: Any
    target: Labels
    domain: Labels
    weights: Array | None = None  #: weights of rows; None without weights
    cv: Any = None  #: splitter, or splits of these rows

    @property
    def n_samples(self) -> float:
        """Number of rows, or the sum of their weights."""
        return len(self.X) if self.weights is None else float(self.weights.sum())

    @property
    def Y(self) -> Array:
        """Targets as columns of numbers."""
        if self.target.codes is None:
            return self.target.values
        return class_targets(self.target.n_categories)[to_host(self.target.codes)]

    @property
    def y(self) -> Array:
        """Targets as scorers expect them."""
        if self.target.codes is None:
            return self.Y[:, 0] if self.Y.shape[1] == 1 else self.Y
        return self.target.names[to_host(self.target.codes)]

    def codes(self) -> tuple[Any, Any]:
        """Return class codes and domain codes; zeros for continuous targets or domains."""
        zeros = np.zeros(len(self.X), dtype=np.int64)

        def move_to_device(codes: Any) -> Any:
            codes = zeros if codes is None else codes
            return to_device_of(codes, self.X) if isinstance(codes, np.ndarray) else codes

        return move_to_device(self.target.codes), move_to_device(self.domain.codes)


@dataclass(frozen=True)
class CandidateScorer:
    """A scorer for many candidates on the same rows."""

    scorer: Any  #: scikit-learn scorer
    rule: Any  #: estimator that the scorer calls: ClassRule or NumberRule

    def __call__(self, outputs: list[Array], y: Array, weights: Array | None) -> Array:
        """Score the candidates; ``outputs`` contains each candidate's predictions."""
        scorer = Scorer(self.scorer)
        with quiet_scores():
            return np.array([scorer.outcome(self.rule, o, y, weights) for o in outputs])


class CountScorer(CandidateScorer):
    """A scorer that needs only predicted classes, and is faster because it counts them."""

    def __call__(self, outputs: list[Array], y: Array, weights: Array | None) -> Array:
        """Score the candidates by their confusion matrices."""
        classes, n = self.rule.classes_, len(self.rule.classes_)
        scorer, rule = Scorer(self.scorer), ClassRule(classes, only_classes=True)
        targets_by_class, offsets, scores = class_targets(n), n * codes_of(y, classes), []
        with quiet_scores():
            for values in outputs:
                counts = np.bincount(offsets + self.rule.codes(values), weights, minlength=n * n)
                pairs = np.flatnonzero(counts)
                predictions = targets_by_class[pairs % n]
                counts = counts[pairs].astype(float)
                scores.append(scorer.outcome(rule, predictions, classes[pairs // n], counts))
        return np.array(scores)


def candidate_scorer(scoring: Any, rule: Any) -> CandidateScorer:
    """Return a scorer for the metric, which counts predicted classes if they suffice."""
    check_task(scoring, isinstance(rule, ClassRule))
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    if isinstance(rule, ClassRule) and isinstance(scorer, type(get_scorer("accuracy"))):
        count_scorer, n = CountScorer(scorer, rule), len(rule.classes_)
        try:
            count_scorer([class_targets(n)], rule.classes_, None)
            return count_scorer
        except (AttributeError, TypeError, ValueError):
            pass  # the metric needs decision values, rejects these classes, or accepts no weights
    return CandidateScorer(scorer, rule)
