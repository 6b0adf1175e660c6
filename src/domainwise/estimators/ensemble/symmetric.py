"""Gradient boosting with symmetric trees.

All nodes on a level have the same split, and all classes share a tree, so a tree has few
parameters for its number of leaves. On small tables, such trees generalize better to unseen domains
than trees that grow leaf by leaf (``benchmarks/STUDIES.md``). Splits are chosen among the
borders of bins, on at most ``MAX_SPLIT_ROWS`` rows and ``MAX_SPLIT_FEATURES`` features, drawn for
each tree. The values of leaves are computed from all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from domainwise.base.arrays import Array

#: Maximum number of rows on which the splits of a tree are chosen.
MAX_SPLIT_ROWS = 2000
#: Maximum number of features among which the splits of a tree are chosen.
MAX_SPLIT_FEATURES = 24


class SymmetricBoosting(BaseEstimator, ABC):
    """Base class of the boosting classifier and regressor.

    Parameters
    ----------
    max_iter : int
        Number of trees.
    max_depth : int
        Number of levels of a tree, which has ``2**max_depth`` leaves.
    learning_rate : float
        Factor by which the values of each tree are multiplied.
    l2_regularization : float
        Strength of the penalty on leaf values, expressed as a number of rows with average weight.
    max_bins : int
        Maximum number of bins per feature; bins contain about the same number of rows.
    random_state : int
        Seed for the rows, row weights and features that are drawn for the splits of each tree, so
        that trees differ.
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
        """Fit trees one after the other, each to the residuals (negative gradients of the loss).

        ``target`` has a column for each output, and ``start`` is the initial prediction.
        """
        row_weights = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight)
        row_weights = row_weights / row_weights.mean()
        rng = np.random.default_rng(self.random_state)
        borders = [bin_borders(column, self.max_bins) for column in X.T]
        bin_codes = np.empty(X.T.shape, dtype=np.uint8)
        for j, feature_borders in enumerate(borders):
            bin_codes[j] = np.searchsorted(feature_borders, X[:, j])
        n_borders = np.array([len(feature_borders) for feature_borders in borders])
        outputs = np.tile(start, (len(X), 1))
        shape = (self.max_iter, self.max_depth)
        self.start_ = start
        self.features_ = np.zeros(shape, dtype=np.intp)
        self.thresholds_ = np.full(shape, np.inf)  # inf sends all rows to the left child
        self.leaves_ = np.zeros((self.max_iter, 2**self.max_depth, len(start)))
        for i in range(self.max_iter if n_borders.any() else 0):
            residuals, curvatures = self._derivatives(outputs, target)
            residuals, curvatures = (row_weights[:, None] * v for v in (residuals, curvatures))
            rows: Any = slice(None)
            if len(X) > MAX_SPLIT_ROWS:
                rows = rng.permutation(len(X))[:MAX_SPLIT_ROWS]
            features = np.sort(rng.permutation(np.flatnonzero(n_borders))[:MAX_SPLIT_FEATURES])
            row_values = np.column_stack([residuals[rows], row_weights[rows]])
            row_values *= rng.exponential(size=(len(row_values), 1))
            # A cell is a pair of a feature and a bin; a row adds the same values to all its cells.
            cells = bin_codes[features][:, rows] + self.max_bins * np.arange(len(features))[:, None]
            cell_values = [np.tile(values, len(features)) for values in row_values.T]
            leaf_indices = np.zeros(len(X), dtype=np.intp)
            for level in range(self.max_depth):
                gains = self._gains(cells, leaf_indices[rows], cell_values, 2**level)
                gains[np.arange(gains.shape[1]) >= n_borders[features][:, None]] = -np.inf
                best_index, cut = np.unravel_index(int(gains.argmax()), gains.shape)
                feature = features[best_index]
                self.features_[i, level] = feature
                self.thresholds_[i, level] = borders[feature][cut]
                leaf_indices = 2 * leaf_indices + (bin_codes[feature] > cut)
            n_leaves = self.leaves_.shape[1]
            numerator, denominator = (
                np.stack([np.bincount(leaf_indices, v, n_leaves) for v in derivatives.T], axis=1)
                for derivatives in (residuals, curvatures)
            )
            denominator += self.l2_regularization * curvatures.mean()
            denominator = np.where(denominator > 0, denominator, 1.0)
            self.leaves_[i] = self.learning_rate * numerator / denominator
            outputs += self.leaves_[i][leaf_indices]

    def _gains(self, cells: Array, leaf_indices: Array, values: list[Array], n: int) -> Array:
        """Return the gain of each cut of each feature, summed over ``n`` leaves."""
        n_cells = len(cells) * self.max_bins
        indices = (cells + n_cells * leaf_indices).ravel()
        cell_sums = [np.bincount(indices, summands, n * n_cells) for summands in values]
        shape = (len(cell_sums), n, -1, self.max_bins)
        left_sums = np.stack(cell_sums).reshape(shape).cumsum(axis=-1)
        right_sums = (left_sums[..., -1:] - left_sums)[..., :-1]
        left_sums = left_sums[..., :-1]
        # If weights are 0, residuals are 0 as well; a positive penalty avoids 0 / 0.
        penalty = max(self.l2_regularization, 1e-12)
        gains = (left_sums[:-1] ** 2).sum(axis=0) / (left_sums[-1] + penalty)
        gains += (right_sums[:-1] ** 2).sum(axis=0) / (np.maximum(right_sums[-1], 0.0) + penalty)
        return np.asarray(gains.sum(axis=0))

    def staged(self, X: Array, tree_counts: set[int]) -> Iterator[Array]:
        """Yield outputs of shape (n_rows, n_outputs), for each number of trees."""
        outputs = np.tile(self.start_, (len(X), 1))
        powers = 1 << np.arange(self.features_.shape[1])[::-1]
        trees = zip(self.features_, self.thresholds_, self.leaves_, strict=True)
        for n_trees, (features, thresholds, leaves) in enumerate(trees, 1):
            outputs += leaves[(X[:, features] > thresholds) @ powers]
            if n_trees in tree_counts:
                yield outputs.copy()

    def _outputs(self, X: Array) -> Array:
        return next(self.staged(np.asarray(X, dtype=np.float64), {len(self.features_)}))

    @abstractmethod
    def _derivatives(self, outputs: Array, target: Array) -> tuple[Array, Array]:
        """Return residuals (negative gradients) and curvatures of the loss, by row and output."""


class SymmetricBoostingClassifier(ClassifierMixin, SymmetricBoosting):
    """Boosting with the log loss; all classes share the splits of a tree."""

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to classes."""
        self.classes_, class_codes = np.unique(y, return_inverse=True)
        target = class_codes[:, None].astype(float)
        if len(self.classes_) > 2:
            target = np.eye(len(self.classes_))[class_codes]
        self._fit(np.asarray(X), target, sample_weight, np.zeros(target.shape[1]))
        return self

    def decision_function(self, X: Array) -> Array:
        """Return the log-odds of the second of two classes, or the outputs for all classes."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: Array) -> Array:
        """Return the probability of each class."""
        outputs = self._outputs(X)
        if len(self.classes_) == 2:
            outputs = np.column_stack([-outputs, outputs]) / 2
        return np.asarray(softmax(outputs, axis=1))

    def predict(self, X: Array) -> Array:
        """Return the most probable class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _derivatives(self, outputs: Array, target: Array) -> tuple[Array, Array]:
        p = expit(outputs) if len(self.classes_) == 2 else softmax(outputs, axis=1)
        return target - p, p * (1 - p)


class SymmetricBoostingRegressor(RegressorMixin, SymmetricBoosting):
    """Boosting with the squared error."""

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to a continuous target."""
        start = np.atleast_1d(np.average(y, weights=sample_weight))
        self._fit(np.asarray(X), np.asarray(y)[:, None], sample_weight, start)
        return self

    def predict(self, X: Array) -> Array:
        """Return the predicted value of each row."""
        return self._outputs(X)[:, 0]

    def _derivatives(self, outputs: Array, target: Array) -> tuple[Array, Array]:
        return target - outputs, np.ones_like(outputs)


def bin_borders(column: Array, max_bins: int) -> Array:
    """Return borders of bins with similar counts, at midpoints between adjacent distinct values."""
    distinct_values, counts = np.unique(column, return_counts=True)
    midpoints = (distinct_values[1:] + distinct_values[:-1]) / 2
    if len(midpoints) < max_bins:
        return np.asarray(midpoints)
    ranks = np.arange(1, max_bins) / max_bins * len(column)
    # Choose the midpoints with about these numbers of rows below them.
    indices = np.searchsorted(np.cumsum(counts)[:-1], ranks)
    return np.asarray(midpoints[np.unique(np.minimum(indices, len(midpoints) - 1))])
