"""The rows of a ridge search, and the estimators that scorers call for its candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from domainwise.base.arrays import Array, to_device_of, to_host
from domainwise.base.inputs import Labels
from domainwise.held_out.calibration.curves import class_columns
from domainwise.held_out.calibration.decisions import MIN_SHARE, DecisionRule, without_class_weights


class ClassRule(ClassifierMixin, BaseEstimator):
    """Fitted estimator that scorers call; it converts decision values, passed as X, into classes.

    Values of indicators -1 and 1 estimate probabilities, from which ``rule`` predicts classes. If
    classes had ``weights`` in the fit, these probabilities are divided by them.
    """

    def __init__(
        self, classes: Any = None, rule: DecisionRule | None = None, weights: Any = 1.0
    ) -> None:
        self.classes = classes
        self.rule = rule
        self.weights = weights

    @property
    def classes_(self) -> Array:
        """Classes, in the order of the columns."""
        return np.asarray(self.classes)

    def codes(self, values: Array) -> Array:
        """Return class codes."""
        values = class_columns(values)
        if self.rule is None:
            return np.asarray(values.argmax(axis=1))
        estimates = np.clip((1.0 + values) / 2.0, MIN_SHARE, None)
        return self.rule.codes(without_class_weights(estimates, self.weights))

    def predict(self, values: Array) -> Array:
        """Return the predicted classes."""
        return self.classes_[self.codes(values)]

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
