"""Checks of values in a model that compiled code uses without checking them.

scikit-learn's trees, support vector machines and encoders do not check the indices and lengths in
their attributes. With values from a forged file, they would read or write memory of other objects,
or allocate too much. skops checks only types. Each type with such attributes has a rule here; other
arrays are used by NumPy, which checks indices. Types that are not listed in
:mod:`domainwise.models.files.types` need no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from domainwise.base.arrays import Array

#: Maximum ``n_jobs``, so that a file cannot start arbitrarily many processes.
MAX_JOBS = 512
#: Attributes that contain training rows.
ROW_ATTRIBUTES = {"X_fit_", "landmarks", "landmarks_", "support_vectors_"}
INVALID_TREE = "a tree refers to nodes, features or values that do not exist"


def check_values(model: Any) -> None:
    """Raise ValueError if an object in a model violates the rule for its type."""
    for obj in _objects(model):
        cls, type_name = type(obj), type(obj).__name__
        if isinstance(obj, np.ndarray):
            if obj.dtype.kind not in "biufUOV" or obj.dtype.itemsize == 0:
                raise ValueError(f"arrays of dtype {obj.dtype} are not allowed in model files")
            continue
        # Attributes must not replace methods or settings of the class. Only in this package are
        # class attributes also used as default values.
        is_from_sklearn = cls.__module__.startswith("sklearn.")
        for name in vars(obj):
            if hasattr(cls, name) and (is_from_sklearn or callable(getattr(cls, name))):
                raise ValueError(f"{type_name}.{name} shadows a class attribute of the same name")
        n_jobs = vars(obj).get("n_jobs")
        if n_jobs is not None and not (isinstance(n_jobs, int) and abs(n_jobs) <= MAX_JOBS):
            raise ValueError(f"{type_name} has n_jobs={n_jobs!r}. Use an integer up to {MAX_JOBS}")
        if type_name == "Pipeline" and vars(obj).get("memory") is not None:
            raise ValueError("Pipeline has a cache folder, which contains pickles. Use memory=None")
        rule = RULES.get(type_name)
        if rule is not None and rule[0] in vars(obj) and not rule[1](obj):
            raise ValueError(f"the attributes of {type_name} are inconsistent")


def training_rows(model: Any) -> list[str]:
    """List the attributes of a model that contain training rows, such as "SVC.support_vectors_".

    Exact kernel machines contain all rows. Landmarks and support vectors are training rows,
    possibly standardized. Statistics, trees and linear models contain no rows.
    """
    attribute_names = set()
    for obj in _objects(model):
        type_name = type(obj).__name__
        attributes: dict[str, Any] = getattr(obj, "__dict__", {})
        # Landmarks of random Fourier features are frequencies; those of a ShiftWatch are random.
        is_fourier = type(attributes.get("kernel")).__name__ == "FourierMap"
        if is_fourier or type_name == "ShiftWatch":
            continue
        for name in ROW_ATTRIBUTES | ({"components_"} if type_name == "Nystroem" else set()):
            if math.prod(np.shape(attributes.get(name, 0))) > 1:  # works for tensors, too
                attribute_names.add(f"{type_name}.{name}")
    return sorted(attribute_names)


def training_targets(model: Any) -> list[str]:
    """List the attributes of a model that contain training targets and held-out predictions.

    They contain no features; see :class:`~domainwise.held_out.scoring.predictions.HeldOut`.
    """
    return sorted(
        f"{type(owner).__name__}.{name}"
        for owner in _objects(model)
        for name, value in getattr(owner, "__dict__", {}).items()
        if type(value).__name__ == "HeldOut"
    )


def _objects(model: Any) -> Iterator[Any]:
    """Yield each array in a model, and each object that has attributes, once."""
    pending, seen_ids = [model], set()
    while pending:
        obj = pending.pop()
        if id(obj) in seen_ids:
            continue
        seen_ids.add(id(obj))
        if isinstance(obj, dict):
            pending.extend(obj.values())
        elif isinstance(obj, (list, tuple, set)):
            pending.extend(obj)
        elif isinstance(obj, np.ndarray):
            yield obj
            if obj.dtype == object:
                pending.extend(obj.ravel())
        elif hasattr(obj, "__dict__") and not isinstance(obj, type):
            yield obj
            pending.extend(vars(obj).values())


def check_tree(state: dict[str, Any], n_features: Any, n_classes: Any, n_outputs: Any) -> None:
    """Raise ValueError if a decision tree is invalid; scikit-learn does not check it."""
    nodes = state["nodes"]
    is_inner = nodes["left_child"] != -1
    if not (
        set(state) == {"max_depth", "node_count", "nodes", "values"}
        and all(isinstance(size, int) for size in (n_features, n_outputs, state["max_depth"]))
        and _is_array(n_classes, (n_outputs,), "int64")
        and _is_array(state["values"], (len(nodes), n_outputs, int(np.max(n_classes))))
        and _is_size(state["node_count"], len(nodes))
        and np.array_equal(is_inner, nodes["right_child"] != -1)
        and _nodes_are_valid(nodes, is_inner, ("left_child", "right_child", "feature"), n_features)
    ):
        raise ValueError(INVALID_TREE)


def _nodes_are_valid(
    nodes: Array, is_inner: Array, field_names: tuple[str, str, str], n_features: int
) -> bool:
    """Return whether features exist and children follow their parents, so that every path ends."""
    left, right, features = (nodes[name][is_inner].astype(np.int64) for name in field_names)
    parents = np.flatnonzero(is_inner)
    is_in_tree = (np.minimum(left, right) > parents) & (np.maximum(left, right) < len(nodes))
    return len(nodes) > 0 and bool((is_in_tree & (features >= 0) & (features < n_features)).all())


def _is_array(
    value: Any, shape: tuple[int, ...], dtype: str = "float64", below: int | None = None
) -> bool:
    """Return True for a finite array of this shape and dtype; integers must be in [0, below)."""
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
        return False
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return bool((value >= 0).all()) and (below is None or bool((value < below).all()))


def _is_size(value: Any, size: int) -> bool:
    return isinstance(value, (int, np.integer)) and int(value) == size


def _svm_is_valid(svm: Any) -> bool:
    """Return whether the arrays of an SVC or an SVR have the sizes that libsvm assumes."""
    n_rows, n_features = svm.shape_fit_
    n_vectors, support_counts = len(svm.support_), svm._n_support
    if "classes_" in vars(svm):
        n_classes = len(svm.classes_)
        has_valid_counts = _is_array(support_counts, (n_classes,), "int32")
        has_valid_counts = has_valid_counts and int(support_counts.sum(dtype=object)) == n_vectors
    else:  # libsvm represents regression as two classes and does not use the second count
        n_classes = 2
        has_valid_counts = support_counts.shape == (2,) and support_counts[0] == n_vectors
    n_pairs = n_classes * (n_classes - 1) // 2
    sigmoid_parameters = (svm._probA, svm._probB)
    return (
        has_valid_counts
        and svm.kernel in ("linear", "poly", "rbf", "sigmoid", "precomputed")
        and svm._sparse is False
        and _is_size(svm.n_features_in_, n_features)
        and _is_array(svm.support_, (n_vectors,), "int32", below=n_rows)
        and _is_array(
            svm.support_vectors_, (0, 0) if svm.kernel == "precomputed" else (n_vectors, n_features)
        )
        and _is_array(svm._dual_coef_, (n_classes - 1, n_vectors))
        and _is_array(svm._intercept_, (n_pairs,))
        and any(all(_is_array(values, (n,)) for values in sigmoid_parameters) for n in (0, n_pairs))
    )


def _boosting_is_valid(model: Any) -> bool:
    """Return whether iterations have the expected number of trees, and nodes are valid."""
    n_classes = len(model.classes_) if "classes_" in vars(model) else 1
    n_trees = 1 if n_classes == 2 else n_classes  # per iteration
    for nodes in (tree.nodes for trees in model._predictors for tree in trees):
        is_inner = nodes["is_leaf"] == 0
        if np.any(nodes["is_categorical"][is_inner]):
            raise ValueError(
                "trees with categorical splits cannot be saved or loaded. Encode categories as "
                "numbers"
            )
        is_finite, field_names = np.isfinite(nodes["value"]).all(), ("left", "right", "feature_idx")
        if not (is_finite and _nodes_are_valid(nodes, is_inner, field_names, model.n_features_in_)):
            raise ValueError(INVALID_TREE)
    return (
        model._preprocessor is None
        and "_in_fit" not in vars(model)
        and _is_size(model.n_trees_per_iteration_, n_trees)
        and _is_array(model._baseline_prediction, (1, n_trees))
        and all(len(trees) == n_trees for trees in model._predictors)
        and _is_array(model._bin_mapper.is_categorical_, (model.n_features_in_,), "uint8", below=1)
    )


def _class_counts(model: Any) -> list[int] | None:
    """Return the number of classes for each output; None if ``n_classes_`` is inconsistent."""
    if "classes_" not in vars(model):
        return [1] * model.n_outputs_
    classes = model.classes_ if isinstance(model.classes_, list) else [model.classes_]
    counts = [len(labels) for labels in classes]
    is_valid = len(counts) == model.n_outputs_ and np.ravel(model.n_classes_).tolist() == counts
    return counts if is_valid else None


def _tree_is_valid(model: Any) -> bool:
    tree = model.tree_
    return (
        type(tree).__name__ == "Tree"
        and _is_size(model.n_features_in_, tree.n_features)
        and _is_size(model.n_outputs_, tree.n_outputs)
        and _class_counts(model) == tree.n_classes.tolist()
    )


def _forest_is_valid(forest: Any) -> bool:
    return _class_counts(forest) is not None and all(
        RULES.get(type(tree).__name__) == ("tree_", _tree_is_valid)
        and _is_size(tree.n_features_in_, forest.n_features_in_)
        and _class_counts(tree) == _class_counts(forest)
        for tree in forest.estimators_
    )


def _encoder_is_valid(encoder: Any) -> bool:
    """Return whether the numbers of output columns agree with the categories."""
    nones = [None] * len(encoder.categories_)
    drop_indices = encoder._drop_idx_after_grouping
    encoded_columns = zip(
        encoder.categories_,
        nones if drop_indices is None else drop_indices,
        encoder._default_to_infrequent_mappings if encoder._infrequent_enabled else nones,
        encoder._n_features_outs,
        strict=True,
    )
    for categories, drop_index, group_indices, n_columns in encoded_columns:
        n_groups = len(categories) if group_indices is None else int(np.max(group_indices)) + 1
        # Values are looked up by bisection, which needs sorted categories.
        is_sorted = categories.dtype == object or np.array_equal(
            categories, np.unique(categories), equal_nan=categories.dtype.kind == "f"
        )
        has_valid_drop = drop_index is None or 0 <= drop_index < n_groups
        if not is_sorted or not has_valid_drop or n_groups - (drop_index is not None) != n_columns:
            return False
    return True


#: For each type name: an attribute that only fitted objects have, and a check for fitted objects.
RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("SVC", "SVR"), ("support_", _svm_is_valid)),
    "OneHotEncoder": ("categories_", _encoder_is_valid),
    "DummyClassifier": ("n_outputs_", lambda model: _class_counts(model) is not None),
    "DummyRegressor": ("n_outputs_", lambda m: _is_array(m.constant_, (1, m.n_outputs_))),
}
for _suffix in ("Classifier", "Regressor"):
    RULES[f"HistGradientBoosting{_suffix}"] = ("_predictors", _boosting_is_valid)
    for _name in (f"DecisionTree{_suffix}", f"ExtraTree{_suffix}"):
        RULES[_name] = ("tree_", _tree_is_valid)
    for _name in (f"ExtraTrees{_suffix}", f"RandomForest{_suffix}"):
        RULES[_name] = ("estimators_", _forest_is_valid)
