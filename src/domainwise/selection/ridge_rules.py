"""How candidates of a ridge search are judged on rows that were left out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from domainwise.arrays import Array
from domainwise.selection.search import scored


class ClassRule(ClassifierMixin, BaseEstimator):
    """Turns decision values into classes, for scorers: its X are the values."""

    def __init__(self, classes: Any = None) -> None:
        self.classes = classes

    @property
    def classes_(self) -> Array:
        """Classes, in the order of the columns."""
        return np.asarray(self.classes)

    def predict(self, values: Array) -> Array:
        """Classes by sign (two of them) or by the largest value."""
        if values.shape[1] == 1:
            return self.classes_[(values[:, 0] > 0).astype(int)]
        return self.classes_[values.argmax(axis=1)]

    def decision_function(self, values: Array) -> Array:
        """The values, one column for two classes."""
        return values[:, 0] if values.shape[1] == 1 else values


class NumberRule(RegressorMixin, BaseEstimator):
    """Passes predicted values on, for scorers: its X are the values."""

    def predict(self, values: Array) -> Array:
        """The values."""
        return values[:, 0] if values.shape[1] == 1 else values


def class_codes(n_classes: int) -> Array:
    """Targets of each class: -1 and 1 for two of them, else one column for each."""
    if n_classes == 2:
        return np.array([[-1.0], [1.0]])
    return 2.0 * np.eye(n_classes) - 1.0


def scores_of_predictions(scorer: Any, rule: Any, blocks: list[Array], y: Array) -> Array:
    """Score the values of many candidates on the same rows."""
    # A few hundred scores of few rows each: checking their arguments would take most of the time.
    with (
        config_context(assume_finite=True, skip_parameter_validation=True),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return np.array([scored(scorer, rule, values, y) for values in blocks])


def minus_squared_errors(blocks: list[Array], Y: Array, weights: Array) -> Array:
    """Minus the weighted mean squared error of many candidates, the mean over targets."""
    weights = weights / weights.sum()
    return np.array([-float((weights @ (values - Y) ** 2).mean()) for values in blocks])
