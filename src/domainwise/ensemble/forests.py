"""Forests in model files: the nodes of all trees in a few arrays.

scikit-learn's trees take 64 bytes for a node, and 8 for each class. Predicting needs the feature
and the threshold of a split, where its right branch begins (the left one comes next), and the
values of leaves. Thresholds are rounded down to float32, which changes no decision about rows in
float32, as trees take them; values of leaves are rounded as soon as a forest is fitted, so that a
loaded forest predicts what the saved one did.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.tree import ExtraTreeRegressor

FORESTS = (ExtraTreesClassifier, ExtraTreesRegressor)
OUTSIDE = "a tree refers to nodes, features or values that do not exist"


def round_leaves(forest: Any) -> Any:
    """Round the values of a forest's leaves to the precision of files, and return the forest."""
    for tree in forest.estimators_:
        values = tree.tree_.value  # a view of the tree's own memory
        values[...] = values.astype(_precision(forest))
    return forest


def _precision(forest: Any) -> Any:
    """Precision of leaf values: shares of classes need fewer digits than numbers."""
    return np.float16 if isinstance(forest, ExtraTreesClassifier) else np.float32


def packed(model: Any) -> Any:
    """Return a forest as a dict of arrays, and any other model unchanged."""
    if not isinstance(model, FORESTS) or model.n_outputs_ != 1:
        return model
    trees = [tree.tree_ for tree in model.estimators_]
    right, feature, threshold = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("children_right", "feature", "threshold")
    )
    values, inner = np.concatenate([tree.value[:, 0] for tree in trees]), right >= 0
    single = threshold.astype(np.float32)
    down = np.nextafter(single, np.float32(-np.inf))
    forest, template = copy(model), copy(model.estimators_[0])
    del template.tree_
    forest.estimators_ = [template]
    return {
        "forest": forest,
        "sizes": np.array([tree.node_count for tree in trees], dtype=np.int32),
        "depths": np.array([tree.max_depth for tree in trees], dtype=np.int32),
        "feature": np.where(inner, feature, -1).astype(np.int32 if feature.max() > 2**15 else "i2"),
        "threshold": np.where(single > threshold, down, single)[inner],
        "right": right[inner].astype(np.int32),
        "values": values[~inner].astype(_precision(model)),
    }


def unpacked(state: Any) -> Any:
    """Undo :func:`packed`; refuse trees that refer to missing nodes, features or values."""
    if not isinstance(state, dict):
        return state
    forest, sizes, feature = copy(state["forest"]), state["sizes"], state["feature"]
    (template,), right = forest.estimators_, state["right"]
    classes = int(getattr(forest, "n_classes_", 1))
    inner = feature >= 0
    if not (
        sizes.min() >= 1
        and sizes.sum(dtype=np.int64) == len(feature)
        and len(state["threshold"]) == len(right) == inner.sum()
        and state["values"].shape == ((~inner).sum(), classes)
    ):
        raise ValueError(OUTSIDE)
    ends = np.cumsum(sizes, dtype=np.int64)
    place = np.arange(len(feature)) - np.repeat(ends - sizes, sizes)
    inside = (right > place[inner] + 1) & (right < np.repeat(sizes, sizes)[inner])
    if not (inside.all() and feature.max() < forest.n_features_in_):
        raise ValueError(OUTSIDE)
    small = ExtraTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0]).tree_
    nodes = np.zeros(len(feature), dtype=small.__getstate__()["nodes"].dtype)
    nodes["left_child"] = np.where(inner, place + 1, -1)
    nodes["right_child"] = nodes["feature"] = nodes["threshold"] = -1
    nodes["right_child"][inner] = right
    nodes["feature"][inner] = feature[inner]
    nodes["threshold"][inner] = state["threshold"]
    nodes["n_node_samples"] = nodes["weighted_n_node_samples"] = 1
    values = np.zeros((len(feature), 1, classes))
    values[~inner, 0] = state["values"]
    forest.estimators_ = []
    for start, end, depth in zip(ends - sizes, ends, state["depths"], strict=True):
        tree = type(small)(forest.n_features_in_, np.array([classes], dtype=np.intp), 1)
        part: dict[str, Any] = {"max_depth": int(depth), "node_count": int(end - start)}
        tree.__setstate__(part | {"nodes": nodes[start:end], "values": values[start:end]})
        estimator = copy(template)
        estimator.tree_ = tree
        forest.estimators_.append(estimator)
    return forest
