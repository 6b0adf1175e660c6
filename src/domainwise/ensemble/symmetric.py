"""Gradient boosting with symmetric trees.

All nodes of a level share one split, and all classes share one tree, so that a tree has few
parameters for its number of leaves. On small tables this generalizes to unseen domains better than
trees that grow leaf by leaf (``benchmarks/ENSEMBLE_DESIGN.md``). Splits are chosen among binned
values on at most ``SEARCHED_ROWS`` rows and ``SEARCHED_FEATURES`` features, drawn anew for each
tree; leaves use all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from domainwise.arrays import Array

#: Rows on which the splits of a tree are chosen, at most.
SEARCHED_ROWS = 2000
#: Features among which the splits of a tree are chosen, at most.
SEARCHED_FEATURES = 24


class SymmetricBoosting(BaseEstimator, ABC):
    """Base class of boosting for classification and for regression.

    Parameters
    ----------
    max_iter : int
        Number of trees.
    max_depth : int
        Levels of a tree, which has ``2**max_depth`` leaves.
    learning_rate : float
        Factor by which the values of each tree are multiplied.
    l2_regularization : float
        Weight of the penalty on the values of leaves, in rows of average weight.
    max_bins : int
        Number of bins of each feature, which hold about the same number of rows.
    random_state : int
        Seed of the rows, row weights and features that are drawn for the splits of each tree: an
        average of different trees is better.
    """

    def __init__(
        self,
        max_iter: int = 120,
        *,
        max_depth: int = 4,
        learning_rate: float = 0.1,
        l2_regularization: float = 3.0,
        max_bins: int = 32,
        random_state: int = 0,
    ) -> None:
        self.max_iter = max_iter
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.l2_regularization = l2_regularization
        self.max_bins = max_bins
        self.random_state = random_state

    def _fit(self, X: Array, target: Array, sample_weight: Array | None, start: Array) -> None:
        """Fit trees one after the other, each to the gradients of the loss of those before it.

        ``target`` has a column for each output, and ``start`` is the initial prediction.
        """
        weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight)
        weight = weight / weight.mean()
        rng = np.random.default_rng(self.random_state)
        borders = [bin_borders(column, self.max_bins) for column in X.T]
        codes = np.empty(X.T.shape, dtype=np.uint8)
        for j, border in enumerate(borders):
            codes[j] = np.searchsorted(border, X[:, j])
        counts = np.array([len(border) for border in borders])
        values = np.tile(start, (len(X), 1))
        shape = (self.max_iter, self.max_depth)
        self.start_ = start
        self.features_ = np.zeros(shape, dtype=np.intp)
        self.thresholds_ = np.full(shape, np.inf)  # where no feature has two values
        self.leaves_ = np.zeros((self.max_iter, 2**self.max_depth, len(start)))
        for i in range(self.max_iter if counts.any() else 0):
            gradient, curvature = self._derivatives(values, target)
            gradient, curvature = weight[:, None] * gradient, weight[:, None] * curvature
            rows: Any = slice(None)
            if len(X) > SEARCHED_ROWS:
                rows = rng.permutation(len(X))[:SEARCHED_ROWS]
            columns = np.sort(rng.permutation(np.flatnonzero(counts))[:SEARCHED_FEATURES])
            sums = np.column_stack([gradient[rows], weight[rows]])
            sums *= rng.exponential(size=(len(sums), 1))
            # Cells of a table of columns and bins, and what every row adds to each of its cells.
            cells = codes[columns][:, rows] + self.max_bins * np.arange(len(columns))[:, None]
            added = [np.tile(part, len(columns)) for part in sums.T]
            leaf = np.zeros(len(X), dtype=np.intp)
            for level in range(self.max_depth):
                gains = self._gains(cells, leaf[rows], added, 2**level)
                gains[np.arange(gains.shape[1]) >= counts[columns][:, None]] = -np.inf
                place, cut = np.unravel_index(int(gains.argmax()), gains.shape)
                feature = columns[place]
                self.features_[i, level] = feature
                self.thresholds_[i, level] = borders[feature][cut]
                leaf = 2 * leaf + (codes[feature] > cut)
            size = self.leaves_.shape[1]
            numerator = np.stack([np.bincount(leaf, v, size) for v in gradient.T], axis=1)
            denominator = np.stack([np.bincount(leaf, v, size) for v in curvature.T], axis=1)
            denominator += self.l2_regularization * curvature.mean()
            self.leaves_[i] = (
                self.learning_rate * numerator / np.where(denominator > 0, denominator, 1.0)
            )
            values += self.leaves_[i][leaf]

    def _gains(self, cells: Array, leaf: Array, added: list[Array], n_leaves: int) -> Array:
        """Gain of every cut of every feature, summed over the leaves that it divides."""
        size = len(cells) * self.max_bins
        places = (cells + size * leaf).ravel()
        parts = [np.bincount(places, part, n_leaves * size) for part in added]
        table = np.stack(parts).reshape(len(added), n_leaves, -1, self.max_bins)
        low = table.cumsum(axis=-1)
        high = (low[..., -1:] - low)[..., :-1]
        low = low[..., :-1]
        # Where weights are 0, so are gradients: this avoids 0 / 0.
        penalty = max(self.l2_regularization, 1e-12)
        gain = (low[:-1] ** 2).sum(axis=0) / (low[-1] + penalty)
        gain += (high[:-1] ** 2).sum(axis=0) / (np.maximum(high[-1], 0.0) + penalty)
        return np.asarray(gain.sum(axis=0))

    def staged(self, X: Array, stages: set[int]) -> Iterator[Array]:
        """Yield outputs after these numbers of trees, of shape (n_rows, n_outputs)."""
        values = np.tile(self.start_, (len(X), 1))
        powers = 1 << np.arange(self.features_.shape[1])[::-1]
        for i, (features, thresholds) in enumerate(
            zip(self.features_, self.thresholds_, strict=True), 1
        ):
            values += self.leaves_[i - 1][(X[:, features] > thresholds) @ powers]
            if i in stages:
                yield values.copy()

    def _outputs(self, X: Array) -> Array:
        return next(self.staged(np.asarray(X, dtype=np.float64), {len(self.features_)}))

    @abstractmethod
    def _derivatives(self, values: Array, target: Array) -> tuple[Array, Array]:
        """Negative gradient and curvature of the loss of each row and output."""


class SymmetricBoostingClassifier(ClassifierMixin, SymmetricBoosting):
    """Boosting of the log loss; several classes share the splits of their trees."""

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to classes."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        several = len(self.classes_) > 2
        target = np.eye(len(self.classes_))[codes] if several else codes[:, None].astype(float)
        self._fit(np.asarray(X), target, sample_weight, np.zeros(target.shape[1]))
        return self

    def decision_function(self, X: Array) -> Array:
        """Log-odds of the second of two classes, or values of all classes."""
        values = self._outputs(X)
        return values[:, 0] if len(self.classes_) == 2 else values

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes."""
        values = self._outputs(X)
        if len(self.classes_) == 2:
            values = np.column_stack([-values, values]) / 2
        return np.asarray(softmax(values, axis=1))

    def predict(self, X: Array) -> Array:
        """The likeliest class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _derivatives(self, values: Array, target: Array) -> tuple[Array, Array]:
        p = expit(values) if len(self.classes_) == 2 else softmax(values, axis=1)
        return target - p, p * (1 - p)


class SymmetricBoostingRegressor(RegressorMixin, SymmetricBoosting):
    """Boosting of the squared error."""

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to a continuous target."""
        start = np.atleast_1d(np.average(y, weights=sample_weight))
        self._fit(np.asarray(X), np.asarray(y)[:, None], sample_weight, start)
        return self

    def predict(self, X: Array) -> Array:
        """Predicted value of each row."""
        return self._outputs(X)[:, 0]

    def _derivatives(self, values: Array, target: Array) -> tuple[Array, Array]:
        return target - values, np.ones_like(values)


def bin_borders(column: Array, max_bins: int) -> Array:
    """Midpoints of neighbouring values that divide a column into bins of similar counts."""
    values, counts = np.unique(column, return_counts=True)
    middle = (values[1:] + values[:-1]) / 2
    if len(middle) < max_bins:
        return np.asarray(middle)
    wanted = np.arange(1, max_bins) / max_bins * len(column)
    # Borders below which there are about as many rows as wanted.
    places = np.searchsorted(np.cumsum(counts)[:-1], wanted)
    return np.asarray(middle[np.unique(np.minimum(places, len(middle) - 1))])
