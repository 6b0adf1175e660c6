"""Values in a loaded model that compiled code follows without looking.

A type may be harmless while its arrays are not: scikit-learn's trees and support vector machines
take indices and lengths from their arrays as they are, and those of a made-up file would make
them read memory that is not theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def check_values(model: Any) -> None:
    """Raise ValueError if a tree or a support vector machine in a model cannot be a fitted one."""
    for part in _parts(model):
        name = type(part).__name__
        if name in ("SVC", "SVR") and "support_" in vars(part):
            _check_svm(part, name)
        if name.startswith("HistGradientBoosting") and "_predictors" in vars(part):
            for tree in (tree for stage in part._predictors for tree in stage):
                _check_tree(tree, int(part.n_features_in_))


def _parts(model: Any) -> Iterator[Any]:
    """All objects in a model that have attributes, each once."""
    pending, seen = [model], set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            pending.extend(value)
        elif isinstance(value, np.ndarray):
            if value.dtype == object:
                pending.extend(value.ravel())
        elif hasattr(value, "__dict__"):
            yield value
            pending.extend(vars(value).values())


def _check_svm(machine: Any, name: str) -> None:
    n_support = len(machine.support_)
    n_classes = len(machine.classes_) if name == "SVC" else 2
    rows = machine.support_vectors_.shape
    precomputed = machine.kernel == "precomputed"
    counts = machine._n_support
    correct = (
        np.shape(machine._dual_coef_) == (n_classes - 1, n_support)
        and len(machine._intercept_) == n_classes * (n_classes - 1) // 2
        and len(counts) == n_classes
        and (np.min(counts) >= 0 and int(np.sum(counts)) == n_support if name == "SVC" else True)
        and (counts[0] == n_support if name == "SVR" else True)
        and (precomputed or rows == (n_support, machine.shape_fit_[1]))
        and np.all(machine.support_ >= 0)
        and np.all(machine.support_ < machine.shape_fit_[0])
    )
    if not correct:
        raise ValueError(f"the arrays of {name} do not fit together")


def _check_tree(tree: Any, n_features: int) -> None:
    nodes = tree.nodes
    index = np.arange(len(nodes))
    inner = nodes["is_leaf"] == 0
    if np.any(nodes["is_categorical"][inner]):
        raise ValueError(
            "trees that split categories cannot be saved or loaded: encode them as numbers"
        )
    correct = len(nodes) > 0 and all(
        np.all(nodes[side][inner] > index[inner]) and np.all(nodes[side][inner] < len(nodes))
        for side in ("left", "right")
    )
    features = nodes["feature_idx"][inner]
    if not correct or np.any(features < 0) or np.any(features >= n_features):
        raise ValueError("a tree points outside of itself")
