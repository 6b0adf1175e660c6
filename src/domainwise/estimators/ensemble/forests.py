"""Compact form of forests for model files: the nodes of all trees in a few arrays.

A node of scikit-learn's trees takes 64 bytes, plus 8 for each class. Predictions only require the
feature and threshold of a split, the index of its right child (the left child is the next node),
and the values of leaves. The importance of features also requires the decrease in impurity at each
split. Thresholds are rounded down to float32, which does not change decisions, because trees
convert rows to float32. Values of leaves are rounded when a forest is fitted, so that a loaded
forest makes the same predictions as the saved one.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.tree import ExtraTreeRegressor

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
