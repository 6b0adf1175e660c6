"""Checks of values in a model that compiled code uses without a check.

A type may be harmless while its arrays are not: scikit-learn's trees, support vector machines and
encoders do not check the indices and lengths in their attributes. With values from a forged file
they would read or write memory of other objects, or allocate too much. skops checks types only.
Each type with such attributes has a rule here; other arrays are used by NumPy, which checks
indices. Types that are not listed in :mod:`domainwise.model_files.types` need no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from domainwise.arrays import Array

#: Maximum of ``n_jobs``, so that a file cannot start any number of processes.
MAX_JOBS = 512
#: Attributes that contain training rows.
ROW_ATTRIBUTES = {"X_fit_", "landmarks", "landmarks_", "support_vectors_"}
DAMAGED_TREE = "a tree refers to nodes, features or values that do not exist"


def check_values(model: Any) -> None:
    """Raise ValueError if an object in a model, to be saved or just loaded, violates its rule."""
    for value in _objects(model):
        kind = type(value)
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biufUOV" or value.dtype.itemsize == 0:
                raise ValueError(f"an array of type {value.dtype!r} cannot be part of a model")
            continue
        # Such an attribute would replace a method or a setting of its class. Estimators of this
        # package have class attributes that are defaults.
        from_sklearn = kind.__module__.startswith("sklearn.")
        for name in vars(value):
            if hasattr(kind, name) and (from_sklearn or callable(getattr(kind, name))):
                raise ValueError(f"attribute {name!r} of {kind.__name__} hides one of its class")
        jobs = vars(value).get("n_jobs")
        if jobs is not None and not (isinstance(jobs, int) and abs(jobs) <= MAX_JOBS):
            raise ValueError(f"{kind.__name__} has n_jobs={jobs!r}; use at most {MAX_JOBS}")
        rule = RULES.get(kind.__name__)
        if rule is not None and rule[0] in vars(value) and not rule[1](value):
            raise ValueError(f"the attributes of {kind.__name__} are inconsistent")


def training_rows(model: Any) -> list[str]:
    """Return the attributes of a model that contain training rows, such as "SVC.support_vectors_".

    Exact kernel machines contain all rows; landmarks and support vectors are some of the rows, even
    if they are standardized. Statistics, trees and linear models contain none.
    """
    names = set()
    for value in _objects(model):
        kind = type(value).__name__
        attributes: dict[str, Any] = getattr(value, "__dict__", {})
        # Landmarks of random Fourier features are frequencies. Those of a ShiftWatch are random
        # points, except in files of format 3, which have the attribute ``_root``.
        random = type(attributes.get("kernel")).__name__ == "FourierMap"
        if random or (kind == "ShiftWatch" and "_root" not in attributes):
            continue
        for name in ROW_ATTRIBUTES | ({"components_"} if kind == "Nystroem" else set()):
            if math.prod(np.shape(attributes.get(name, 0))) > 1:  # also for tensors
                names.add(f"{kind}.{name}")
    return sorted(names)


def training_targets(model: Any) -> list[str]:
    """Return the attributes of a model that contain targets of training rows and predictions.

    They contain no features; see :class:`~domainwise.scoring.predictions.HeldOut`.
    """
    return sorted(
        f"{type(owner).__name__}.{name}"
        for owner in _objects(model)
        for name, value in getattr(owner, "__dict__", {}).items()
        if type(value).__name__ == "HeldOut"
    )


def _objects(model: Any) -> Iterator[Any]:
    """Yield all arrays and objects with attributes in a model once."""
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
            yield value
            if value.dtype == object:
                pending.extend(value.ravel())
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            yield value
            pending.extend(vars(value).values())


def check_tree(state: dict[str, Any], n_features: Any, n_classes: Any, n_outputs: Any) -> None:
    """Raise ValueError if a Tree is invalid; scikit-learn does not check it."""
    nodes = state["nodes"]
    inner = nodes["left_child"] != -1
    if not (
        set(state) == {"max_depth", "node_count", "nodes", "values"}
        and all(isinstance(size, int) for size in (n_features, n_outputs, state["max_depth"]))
        and _is_array(n_classes, (n_outputs,), "int64")
        and _is_array(state["values"], (len(nodes), n_outputs, int(np.max(n_classes))))
        and _is_size(state["node_count"], len(nodes))
        and np.array_equal(inner, nodes["right_child"] != -1)
        and _nodes_are_valid(nodes, inner, ("left_child", "right_child", "feature"), n_features)
    ):
        raise ValueError(DAMAGED_TREE)


def _nodes_are_valid(
    nodes: Array, inner: Array, names: tuple[str, str, str], n_features: int
) -> bool:
    """Whether features exist, and children come after their parents, so that every path ends."""
    left, right, feature = (nodes[name][inner].astype(np.int64) for name in names)
    parent = np.flatnonzero(inner)
    in_tree = (np.minimum(left, right) > parent) & (np.maximum(left, right) < len(nodes))
    return len(nodes) > 0 and bool((in_tree & (feature >= 0) & (feature < n_features)).all())


def _is_array(
    value: Any, shape: tuple[int, ...], dtype: str = "float64", below: int | None = None
) -> bool:
    """Whether a value is a finite array of this shape and dtype; integers are 0 to ``below``."""
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
        return False
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return bool((value >= 0).all()) and (below is None or bool((value < below).all()))


def _is_size(value: Any, size: int) -> bool:
    return isinstance(value, (int, np.integer)) and int(value) == size


def _machine(machine: Any) -> bool:
    """Whether the arrays of an SVC or an SVR have the sizes that libsvm assumes."""
    rows, features = machine.shape_fit_
    n_support, counts = len(machine.support_), machine._n_support
    if "classes_" in vars(machine):
        n_classes = len(machine.classes_)
        counted = _is_array(counts, (n_classes,), "int32")
        counted = counted and int(counts.sum(dtype=object)) == n_support
    else:  # libsvm represents a regression by two classes and does not use the second count
        n_classes = 2
        counted = counts.shape == (2,) and counts[0] == n_support
    pairs = n_classes * (n_classes - 1) // 2
    sigmoids = (machine._probA, machine._probB)
    return (
        counted
        and machine.kernel in ("linear", "poly", "rbf", "sigmoid", "precomputed")
        and machine._sparse is False
        and _is_size(machine.n_features_in_, features)
        and _is_array(machine.support_, (n_support,), "int32", below=rows)
        and _is_array(
            machine.support_vectors_,
            (0, 0) if machine.kernel == "precomputed" else (n_support, features),
        )
        and _is_array(machine._dual_coef_, (n_classes - 1, n_support))
        and _is_array(machine._intercept_, (pairs,))
        and any(all(_is_array(values, (n,)) for values in sigmoids) for n in (0, pairs))
    )


def _boosting(model: Any) -> bool:
    """Whether there are as many trees as expected, and nodes refer to existing nodes."""
    n_classes = len(model.classes_) if "classes_" in vars(model) else 1
    n_trees = 1 if n_classes == 2 else n_classes
    for tree in (tree for stage in model._predictors for tree in stage):
        inner = tree.nodes["is_leaf"] == 0
        if np.any(tree.nodes["is_categorical"][inner]):
            raise ValueError(
                "trees with splits by category cannot be saved or loaded. Encode categories as "
                "numbers"
            )
        finite = np.isfinite(tree.nodes["value"]).all()
        names = ("left", "right", "feature_idx")
        if not (finite and _nodes_are_valid(tree.nodes, inner, names, model.n_features_in_)):
            raise ValueError(DAMAGED_TREE)
    return (
        model._preprocessor is None
        and "_in_fit" not in vars(model)
        and _is_size(model.n_trees_per_iteration_, n_trees)
        and _is_array(model._baseline_prediction, (1, n_trees))
        and all(len(stage) == n_trees for stage in model._predictors)
        and _is_array(model._bin_mapper.is_categorical_, (model.n_features_in_,), "uint8", below=1)
    )


def _classes(model: Any) -> list[int] | None:
    """Return the number of classes of each output; None if ``n_classes_`` is inconsistent."""
    if "classes_" not in vars(model):
        return [1] * model.n_outputs_
    classes = model.classes_ if isinstance(model.classes_, list) else [model.classes_]
    counts = [len(labels) for labels in classes]
    consistent = len(counts) == model.n_outputs_ and np.ravel(model.n_classes_).tolist() == counts
    return counts if consistent else None


def _tree(model: Any) -> bool:
    tree = model.tree_
    return (
        type(tree).__name__ == "Tree"
        and _is_size(model.n_features_in_, tree.n_features)
        and _is_size(model.n_outputs_, tree.n_outputs)
        and _classes(model) == tree.n_classes.tolist()
    )


def _forest(forest: Any) -> bool:
    return _classes(forest) is not None and all(
        RULES.get(type(tree).__name__) == ("tree_", _tree)
        and _is_size(tree.n_features_in_, forest.n_features_in_)
        and _classes(tree) == _classes(forest)
        for tree in forest.estimators_
    )


def _encoder(encoder: Any) -> bool:
    """Whether the numbers of columns agree with the categories."""
    none = [None] * len(encoder.categories_)
    drops = encoder._drop_idx_after_grouping
    columns = zip(
        encoder.categories_,
        none if drops is None else drops,
        encoder._default_to_infrequent_mappings if encoder._infrequent_enabled else none,
        encoder._n_features_outs,
        strict=True,
    )
    for categories, drop, groups, n_columns in columns:
        n_groups = len(categories) if groups is None else int(np.max(groups)) + 1
        # Values are looked up by bisection, which needs them in order.
        ordered = categories.dtype == object or np.array_equal(
            categories, np.unique(categories), equal_nan=categories.dtype.kind == "f"
        )
        in_range = drop is None or 0 <= drop < n_groups
        if not ordered or not in_range or n_groups - (drop is not None) != n_columns:
            return False
    return True


_KINDS = ("Classifier", "Regressor")
#: By type name: an attribute that fitted objects have, and a check of fitted objects.
RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("SVC", "SVR"), ("support_", _machine)),
    **{f"HistGradientBoosting{kind}": ("_predictors", _boosting) for kind in _KINDS},
    **{f"{tree}Tree{kind}": ("tree_", _tree) for tree in ("Decision", "Extra") for kind in _KINDS},
    **{
        f"{trees}{kind}": ("estimators_", _forest)
        for trees in ("ExtraTrees", "RandomForest")
        for kind in _KINDS
    },
    "OneHotEncoder": ("categories_", _encoder),
    "DummyClassifier": ("n_outputs_", lambda dummy: _classes(dummy) is not None),
    "DummyRegressor": (
        "n_outputs_",
        lambda dummy: _is_array(dummy.constant_, (1, dummy.n_outputs_)),
    ),
    # A cache folder would contain pickles.
    "Pipeline": ("steps", lambda pipeline: pipeline.memory is None),
}
