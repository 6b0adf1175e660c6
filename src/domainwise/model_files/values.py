"""Values in a model that compiled code uses without a check.

A type may be harmless while its arrays are not: scikit-learn's trees, support vector machines and
encoders use indices and lengths of their attributes unchecked. Those of a forged file would make
them read or write memory that is not theirs, or allocate too much. skops checks types only. Each
type with such attributes has a rule here; other arrays are used by NumPy, which checks indices.
Types that are not listed in :mod:`domainwise.model_files.types` need no rule.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from domainwise.arrays import Array

#: A file must not start more processes than a machine has processors.
MOST_JOBS = 512
#: Attributes that contain training rows.
ROWS = {"X_fit_", "landmarks", "landmarks_", "support_vectors_"}


@dataclasses.dataclass(frozen=True)
class Numbers:
    """An array: sizes of its axes by name, its type, and the meaning of whole numbers.

    They are indices ``below`` a size, or counts with a ``total``; floats are finite.
    """

    axes: str
    dtype: str = "float64"
    below: str | None = None
    total: str | None = None
    or_empty: bool = False

    def fits(self, value: Any, sizes: dict[str, int]) -> bool:
        """Whether a value is such an array, for these sizes."""
        if not isinstance(value, np.ndarray) or value.dtype != self.dtype:
            return False
        if self.or_empty and value.shape == (0,):
            return True
        if value.shape != tuple(sizes[axis] for axis in self.axes.split()):
            return False
        if value.dtype.kind == "f":
            return bool(np.isfinite(value).all())
        in_range = self.below is None or bool((value < sizes[self.below]).all())
        in_total = self.total is None or int(value.sum(dtype=object)) == sizes[self.total]
        return in_range and in_total and bool((value >= 0).all())


@dataclasses.dataclass(frozen=True)
class Rule:
    """Conditions on an object that is fitted, which it is if it has the attribute ``fitted``.

    Its sizes by name; its arrays; attributes equal to a size; attributes with few possible values;
    and other conditions.
    """

    fitted: str
    sizes: Callable[[Any], dict[str, int]] = lambda part: {}
    arrays: dict[str, Numbers] = dataclasses.field(default_factory=dict)
    counts: dict[str, str] = dataclasses.field(default_factory=dict)
    choices: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    also: Callable[[Any], bool] = lambda part: True

    def holds(self, part: Any) -> bool:
        """Whether an object satisfies the rule."""
        if self.fitted not in vars(part):
            return True
        sizes = self.sizes(part)
        return (
            all(rule.fits(getattr(part, name), sizes) for name, rule in self.arrays.items())
            and all(_same(getattr(part, name), sizes[size]) for name, size in self.counts.items())
            and all(getattr(part, name) in allowed for name, allowed in self.choices.items())
            and self.also(part)
        )


def check_values(model: Any) -> None:
    """Raise ValueError if a part of a model, to be saved or just loaded, breaks its rule."""
    for part in _parts(model):
        name = type(part).__name__
        if isinstance(part, np.ndarray):
            if part.dtype.kind not in "biufUOV" or part.dtype.itemsize == 0:
                raise ValueError(f"an array of type {part.dtype!r} cannot be part of a model")
            continue
        # Such an attribute would replace a method or a setting of its class. Estimators of this
        # package have class attributes that are defaults.
        foreign = type(part).__module__.startswith("sklearn.")
        for attribute in vars(part):
            own = getattr(type(part), attribute, None)
            if hasattr(type(part), attribute) and (foreign or callable(own)):
                raise ValueError(
                    f"{name} has an attribute {attribute!r}, which hides one of its class"
                )
        jobs = vars(part).get("n_jobs")
        if jobs is not None and not (isinstance(jobs, int) and abs(jobs) <= MOST_JOBS):
            raise ValueError(f"{name} has n_jobs={jobs!r}; use at most {MOST_JOBS}")
        rule = RULES.get(name)
        if rule is not None and not rule.holds(part):
            raise ValueError(f"the attributes of {name} do not fit together")


def training_rows(model: Any) -> list[str]:
    """Return the attributes of a model that contain training rows, such as "SVC.support_vectors_".

    Exact kernel machines contain all rows, landmarks and support vectors some of them, also where
    values were standardised first. Statistics, trees and linear models contain none.
    """
    names = set()
    for part in _parts(model):
        kind = type(part).__name__
        attributes: dict[str, Any] = {} if isinstance(part, np.ndarray) else vars(part)
        # Landmarks of random Fourier features are frequencies. Those of a watch are random points,
        # but in files of format 3, which have a root.
        random = type(attributes.get("kernel")).__name__ == "FourierMap"
        if random or (kind == "ShiftWatch" and "_root" not in attributes):
            continue
        for name in ROWS | ({"components_"} if kind == "Nystroem" else set()):
            if math.prod(np.shape(attributes.get(name, 0))) > 1:  # of tensors, too
                names.add(f"{kind}.{name}")
    return sorted(names)


def training_targets(model: Any) -> list[str]:
    """Return the attributes of a model that contain targets of training rows and predictions.

    They hold no features; see :class:`~domainwise.scoring.predictions.HeldOut`.
    """
    return sorted(
        f"{type(part).__name__}.{name}"
        for part in _parts(model)
        if not isinstance(part, np.ndarray)
        for name, value in vars(part).items()
        if type(value).__name__ == "HeldOut"
    )


def check_tree(state: dict[str, Any], n_features: Any, n_classes: Any, n_outputs: Any) -> None:
    """Raise ValueError if scikit-learn's Tree, which copies unchecked, must not be built so."""
    nodes = state["nodes"]
    sizes = {"outputs": n_outputs, "nodes": len(nodes), "classes": int(np.max(n_classes))}
    right = (
        all(isinstance(size, int) for size in (n_features, n_outputs, state["max_depth"]))
        and Numbers("outputs", "int64").fits(n_classes, sizes)
        and Numbers("nodes outputs classes").fits(state["values"], sizes)
        and _same(state["node_count"], len(nodes))
        and set(state) == {"max_depth", "node_count", "nodes", "values"}
        and np.array_equal(nodes["left_child"] == -1, nodes["right_child"] == -1)
        and _inside(nodes, nodes["left_child"] != -1, ("left_child", "right_child"))
        and _features_known(nodes["feature"][nodes["left_child"] != -1], n_features)
    )
    if not right:
        raise ValueError("a tree points outside of itself")


def _parts(model: Any) -> Iterator[Any]:
    """All arrays and objects with attributes in a model, each once."""
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


def _same(value: Any, size: int) -> bool:
    return isinstance(value, (int, np.integer)) and int(value) == size


def _svm_sizes(machine: Any) -> dict[str, int]:
    # Two "classes" are how libsvm describes a regression.
    n_classes = len(machine.classes_) if "classes_" in vars(machine) else 2
    n_rows, n_features = machine.shape_fit_
    precomputed = machine.kernel == "precomputed"
    return {
        "classes": n_classes,
        "classes-1": n_classes - 1,
        "pairs": n_classes * (n_classes - 1) // 2,
        "support": len(machine.support_),
        "rows": n_rows,
        "vectors": 0 if precomputed else len(machine.support_),
        "columns": 0 if precomputed else n_features,
        "features": n_features,
    }


def _boosting_sizes(model: Any) -> dict[str, int]:
    n_classes = len(model.classes_) if "classes_" in vars(model) else 1
    n_trees = 1 if n_classes == 2 else n_classes
    return {"one": 1, "trees": n_trees, "features": model.n_features_in_}


def _boosting_trees_right(model: Any) -> bool:
    """Whether every tree has its place, no node points outside, and none splits categories."""
    sizes = _boosting_sizes(model)
    for stage in model._predictors:
        for tree in stage:
            inner = tree.nodes["is_leaf"] == 0
            if np.any(tree.nodes["is_categorical"][inner]):
                raise ValueError(
                    "trees that split categories cannot be saved or loaded: encode them as numbers"
                )
            if not (
                _inside(tree.nodes, inner, ("left", "right"))
                and _features_known(tree.nodes["feature_idx"][inner], sizes["features"])
                and np.isfinite(tree.nodes["value"]).all()
            ):
                raise ValueError("a tree points outside of itself")
    no_categories = Numbers("features", "uint8", below="one")
    return (
        all(len(stage) == sizes["trees"] for stage in model._predictors)
        and no_categories.fits(model._bin_mapper.is_categorical_, sizes)
        and "_in_fit" not in vars(model)
    )


def _inside(nodes: Array, inner: Array, sides: tuple[str, str]) -> bool:
    """Whether children come after their parents, so that every walk from the root ends."""
    place = np.flatnonzero(inner)
    children = [nodes[side][inner].astype(np.int64) for side in sides]
    return len(nodes) > 0 and all(
        bool((child > place).all() and (child < len(nodes)).all()) for child in children
    )


def _features_known(index: Array, n_features: int) -> bool:
    return bool((index >= 0).all() and (index < n_features).all())


def _classes(model: Any) -> list[int] | None:
    """Numbers of classes of each output, where a model's own count agrees with its classes."""
    if "classes_" not in vars(model):
        return [1] * model.n_outputs_
    classes = model.classes_ if isinstance(model.classes_, list) else [model.classes_]
    counts = [len(labels) for labels in classes]
    consistent = len(counts) == model.n_outputs_ and np.ravel(model.n_classes_).tolist() == counts
    return counts if consistent else None


def _decision_tree_right(model: Any) -> bool:
    tree = model.tree_
    return (
        type(tree).__name__ == "Tree"
        and _same(model.n_features_in_, tree.n_features)
        and _same(model.n_outputs_, tree.n_outputs)
        and _classes(model) == tree.n_classes.tolist()
    )


def _forest_right(forest: Any) -> bool:
    return _classes(forest) is not None and all(
        RULES.get(type(tree).__name__) is _tree
        and _same(tree.n_features_in_, forest.n_features_in_)
        and _classes(tree) == _classes(forest)
        for tree in forest.estimators_
    )


def _encoder_right(encoder: Any) -> bool:
    """Whether the numbers of columns agree with the categories."""
    room, nothing = encoder._n_features_outs, [None] * len(encoder.categories_)
    drops = encoder._drop_idx_after_grouping
    groups = encoder._default_to_infrequent_mappings if encoder._infrequent_enabled else nothing
    parts = zip(encoder.categories_, nothing if drops is None else drops, groups, room, strict=True)
    for known, drop, group, columns in parts:
        n_groups = len(known) if group is None else int(np.max(group)) + 1
        # Values are looked up by bisection, which needs them in order.
        ordered = known.dtype == object or np.array_equal(
            known, np.unique(known), equal_nan=known.dtype.kind == "f"
        )
        in_range = drop is None or 0 <= drop < n_groups
        if not ordered or not in_range or n_groups - (drop is not None) != columns:
            return False
    return True


_SVM = {
    "support_": Numbers("support", "int32", below="rows"),
    "support_vectors_": Numbers("vectors columns"),
    "_n_support": Numbers("classes", "int32", total="support"),
    "_dual_coef_": Numbers("classes-1 support"),
    "_intercept_": Numbers("pairs"),
    "_probA": Numbers("pairs", or_empty=True),
    "_probB": Numbers("pairs", or_empty=True),
}
_svc = Rule(
    "support_",
    _svm_sizes,
    _SVM,
    {"n_features_in_": "features"},
    {"_sparse": (False,), "kernel": ("linear", "poly", "rbf", "sigmoid", "precomputed")},
    lambda machine: machine._probA.shape == machine._probB.shape,
)
_boosting = Rule(
    "_predictors",
    _boosting_sizes,
    {"_baseline_prediction": Numbers("one trees")},
    {"n_trees_per_iteration_": "trees"},
    {"_preprocessor": (None,)},
    _boosting_trees_right,
)
_tree = Rule("tree_", also=_decision_tree_right)
_forest = Rule("estimators_", also=_forest_right)

_KINDS = ("Classifier", "Regressor")
#: By the name of a type.
RULES: dict[str, Rule] = {
    "SVC": _svc,
    # A regression has one group of support vectors; the second number is unused.
    "SVR": dataclasses.replace(
        _svc,
        arrays={name: rule for name, rule in _SVM.items() if name != "_n_support"},
        also=lambda svr: svr._n_support.shape == (2,) and svr._n_support[0] == len(svr.support_),
    ),
    **{f"HistGradientBoosting{kind}": _boosting for kind in _KINDS},
    **{f"{tree}Tree{kind}": _tree for tree in ("Decision", "Extra") for kind in _KINDS},
    **{f"{trees}{kind}": _forest for trees in ("ExtraTrees", "RandomForest") for kind in _KINDS},
    "OneHotEncoder": Rule("categories_", also=_encoder_right),
    "DummyClassifier": Rule("n_outputs_", also=lambda dummy: _classes(dummy) is not None),
    "DummyRegressor": Rule(
        "n_outputs_",
        lambda dummy: {"one": 1, "outputs": dummy.n_outputs_},
        {"constant_": Numbers("one outputs")},
    ),
    # A cache in a folder holds pickles.
    "Pipeline": Rule("steps", choices={"memory": (None,)}),
}
