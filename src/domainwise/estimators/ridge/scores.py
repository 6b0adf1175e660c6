"""The rows of a ridge search, and scores of its candidates on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

#: Regression metrics that are means over rows.
ROW_MEAN_METRICS = (
    "neg_mean_absolute_error",
    "neg_mean_absolute_percentage_error",
    "neg_mean_gamma_deviance",
    "neg_mean_poisson_deviance",
    "neg_mean_squared_log_error",
)


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
    """A scorer for many candidates that requires the predicted values of all rows.

    Rows can be passed in batches. Subclasses store a summary of each batch instead of its values.
    """

    scorer: Any  #: scikit-learn scorer
    rule: Any  #: estimator that the scorer calls: ClassRule or NumberRule

    def __call__(self, outputs: list[Array], y: Array, weights: Array | None = None) -> Array:
        """Score candidates on the same rows; ``outputs`` contains each candidate's predictions."""
        return self.scores(self.summarize(outputs, y, weights))

    def summarize(self, outputs: list[Array], y: Array, weights: Array | None = None) -> Any:
        """Return what the score needs to know about the predictions for some rows."""
        return outputs, y, weights

    def merge(self, summaries: Sequence[Any]) -> Any:
        """Merge the summaries of several batches without weights, in the order of the batches."""
        outputs, y, _ = zip(*summaries, strict=True)
        merged_outputs = [np.concatenate(values) for values in zip(*outputs, strict=True)]
        return merged_outputs, np.concatenate(y), None

    def scores(self, summary: Any) -> Array:
        """Score every candidate."""
        scorer = Scorer(self.scorer)
        with quiet_scores():
            return np.array([scorer.outcome(**inputs) for inputs in self._scorer_inputs(summary)])

    def _scorer_inputs(self, summary: Any) -> Iterator[dict[str, Any]]:
        outputs, y, weights = summary
        labels = {"model": self.rule, "y": y, "sample_weight": weights}
        return ({"X": values, **labels} for values in outputs)


class MeanScorer(CandidateScorer):
    """A scorer for means over rows; a summary is a row count and a score for each candidate."""

    def summarize(self, outputs: list[Array], y: Array, weights: Array | None = None) -> Any:
        """Score the candidates on these rows."""
        n = len(y) if weights is None else weights.sum()
        return n, super().scores((outputs, y, weights))

    def merge(self, summaries: Sequence[Any]) -> Any:
        """Average the scores, weighted by the numbers of rows."""
        row_counts, scores = zip(*summaries, strict=True)
        return sum(row_counts), np.average(scores, axis=0, weights=row_counts)

    def scores(self, summary: Any) -> Array:
        """Return the scores in the merged summary."""
        return np.asarray(summary[1])


class CountScorer(CandidateScorer):
    """A scorer that needs only predicted classes; a summary is a confusion matrix per candidate."""

    def summarize(self, outputs: list[Array], y: Array, weights: Array | None = None) -> Any:
        """Return confusion matrices, of shape (candidates, true classes, predicted classes)."""
        n, rule = len(self.rule.classes_), self.rule
        offsets = n * codes_of(y, rule.classes_)
        codes = (offsets + rule.codes(values) for values in outputs)
        counts = [np.bincount(row_codes, weights, minlength=n * n) for row_codes in codes]
        return np.reshape(counts, (-1, n, n))

    def merge(self, summaries: Sequence[Any]) -> Any:
        """Add the confusion matrices."""
        return sum(summaries)

    def _scorer_inputs(self, summary: Any) -> Iterator[dict[str, Any]]:
        classes, targets_by_class = self.rule.classes_, class_targets(len(self.rule.classes_))
        rule = ClassRule(classes, only_classes=True)
        for confusion_matrix in summary:
            true_codes, predicted_codes = np.nonzero(confusion_matrix)
            weights = confusion_matrix[true_codes, predicted_codes].astype(float)
            values = targets_by_class[predicted_codes]
            yield {"model": rule, "X": values, "y": classes[true_codes], "sample_weight": weights}


def candidate_scorer(scoring: Any, rule: Any) -> CandidateScorer:
    """Return a scorer for the metric, one that stores as little as possible about held-out rows."""
    check_task(scoring, isinstance(rule, ClassRule))
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    if scoring in ROW_MEAN_METRICS:
        return MeanScorer(scorer, rule)
    if isinstance(rule, ClassRule) and isinstance(scorer, type(get_scorer("accuracy"))):
        count_scorer = CountScorer(scorer, rule)
        try:
            count_scorer.scores(np.eye(len(rule.classes_))[None])
            return count_scorer
        except (AttributeError, TypeError, ValueError):
            pass  # the metric needs decision values, rejects these classes, or accepts no weights
    return CandidateScorer(scorer, rule)
