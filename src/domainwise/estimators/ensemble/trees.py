"""Trees of the ensemble: small forests, and gradient boosting with symmetric trees.

All nodes on a level have the same split, and all classes share a tree, so a tree has few
parameters for its number of leaves. On small tables, such trees generalize better to unseen domains
than trees that grow leaf by leaf. Splits are chosen among the borders of bins, on at most
``MAX_SPLIT_ROWS`` rows and ``MAX_SPLIT_FEATURES`` features, drawn for each tree. The values of
leaves are computed from all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import field
from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.tree import ExtraTreeRegressor

from domainwise.base.arrays import Array
from domainwise.base.signatures import arguments

FOREST_TYPES = (ExtraTreesClassifier, ExtraTreesRegressor)
INVALID_TREE = "a tree refers to nodes, features or values that do not exist"


def round_leaves(forest: Any) -> Any:
    """Round the leaf values of a forest to the precision of model files, and return the forest."""
    for tree in forest.estimators_:
        node_values = tree.tree_.value  # a view of the tree's own array
        node_values[...] = node_values.astype(_leaf_dtype(forest))
    return forest


def _leaf_dtype(forest: Any) -> Any:
    """Return the dtype of leaf values; class shares need fewer digits than regression targets."""
    return np.float16 if isinstance(forest, ExtraTreesClassifier) else np.float32


def pack_forest(model: Any) -> Any:
    """Return a forest as a dict of arrays, and any other model unchanged."""
    if not isinstance(model, FOREST_TYPES) or model.n_outputs_ != 1:
        return model
    trees = [tree.tree_ for tree in model.estimators_]
    right_child, feature, threshold = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("children_right", "feature", "threshold")
    )
    node_values, is_split = np.concatenate([tree.value[:, 0] for tree in trees]), right_child >= 0
    threshold_32 = threshold.astype(np.float32)
    lower_neighbor = np.nextafter(threshold_32, np.float32(-np.inf))
    forest, template = copy(model), copy(model.estimators_[0])
    del template.tree_
    forest.estimators_ = [template]
    return {
        "forest": forest,
        "sizes": np.array([tree.node_count for tree in trees], dtype=np.int32),
        "depths": np.array([tree.max_depth for tree in trees], dtype=np.int32),
        "feature": np.where(is_split, feature, -1).astype("i4" if feature.max() > 2**15 else "i2"),
        "threshold": np.where(threshold_32 > threshold, lower_neighbor, threshold_32)[is_split],
        "right": right_child[is_split].astype(np.int32),
        "values": node_values[~is_split].astype(_leaf_dtype(model)),
        "gains": np.concatenate([_gains(tree) for tree in trees]).astype(np.float32),
    }


def _gains(tree: Any) -> Any:
    """Return the decrease in impurity at each split, from which importances are computed."""
    left, right, weight = tree.children_left, tree.children_right, tree.weighted_n_node_samples
    total, is_split = weight * tree.impurity / weight[0], left >= 0
    return (total - total[left] - total[right])[is_split]


def unpack_forest(state: Any) -> Any:
    """Restore a forest packed by :func:`pack_forest`; raise ValueError if a tree is not valid."""
    if not isinstance(state, dict):
        return state
    forest, tree_sizes, feature = copy(state["forest"]), state["sizes"], state["feature"]
    (template,), right_child = forest.estimators_, state["right"]
    n_classes, is_split = int(getattr(forest, "n_classes_", 1)), feature >= 0
    if not (
        tree_sizes.min() >= 1
        and tree_sizes.sum(dtype=np.int64) == len(feature)
        and len(state["threshold"]) == len(right_child) == len(state["gains"]) == is_split.sum()
        and state["values"].shape == ((~is_split).sum(), n_classes)
    ):
        raise ValueError(INVALID_TREE)
    stops = np.cumsum(tree_sizes, dtype=np.int64)
    node_indices = np.arange(len(feature)) - np.repeat(stops - tree_sizes, tree_sizes)
    max_child = np.repeat(tree_sizes, tree_sizes)[is_split] - 1
    is_valid = (right_child > node_indices[is_split] + 1) & (right_child <= max_child)
    if not (is_valid.all() and feature.max() < forest.n_features_in_):
        raise ValueError(INVALID_TREE)
    example_tree = ExtraTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0]).tree_
    nodes = np.zeros(len(feature), dtype=example_tree.__getstate__()["nodes"].dtype)
    nodes["left_child"] = np.where(is_split, node_indices + 1, -1)
    nodes["right_child"] = nodes["feature"] = nodes["threshold"] = -1
    nodes["right_child"][is_split] = right_child
    nodes["feature"][is_split] = feature[is_split]
    nodes["threshold"][is_split] = state["threshold"]
    nodes["n_node_samples"] = nodes["weighted_n_node_samples"] = 1
    # The impurity of a node is the sum of the gains in its subtree, whose nodes are adjacent.
    last_nodes = np.arange(len(feature))
    last_nodes[is_split] = right_child + np.repeat(stops - tree_sizes, tree_sizes)[is_split]
    for _ in range(int(state["depths"].max()).bit_length()):
        last_nodes = last_nodes[last_nodes]
    gains = np.zeros(len(feature) + 1)
    gains[1:][is_split] = state["gains"]
    sums = np.cumsum(gains)
    nodes["impurity"] = sums[last_nodes + 1] - sums[:-1]
    values = np.zeros((len(feature), 1, n_classes))
    values[~is_split, 0] = state["values"]
    forest.estimators_ = []
    for start, stop, depth in zip(stops - tree_sizes, stops, state["depths"], strict=True):
        tree = type(example_tree)(forest.n_features_in_, np.array([n_classes], dtype=np.intp), 1)
        tree_state: dict[str, Any] = {"max_depth": int(depth), "node_count": int(stop - start)}
        tree.__setstate__(tree_state | {"nodes": nodes[start:stop], "values": values[start:stop]})
        estimator = copy(template)
        estimator.tree_ = tree
        forest.estimators_.append(estimator)
    return forest


#: Maximum number of rows on which the splits of a tree are chosen.
MAX_SPLIT_ROWS = 2000
#: Maximum number of features among which the splits of a tree are chosen.
MAX_SPLIT_FEATURES = 24


@arguments
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

    max_iter: int = field(default=120, kw_only=False)
    max_depth: int = 4
    learning_rate: float = 0.1
    l2_regularization: float = 3.0
    max_bins: int = 32
    random_state: int = 0

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
