"""Parts of models that are scikit-learn's, in float64.

skl2onnx rounds support vectors, leaves and filled values to float32, and has no missing text.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from onnx import numpy_helper
from sklearn import dummy, ensemble
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from domainwise.arrays import Array
from domainwise.export.graph import Classified, Tensor, class_columns, kernel_values
from domainwise.kernels.functions import Kernel
from domainwise.models.registry import ClassMeans

#: By exact type, what turns rows into a :class:`Tensor`, of a classifier into :class:`Classified`.
PARTS: dict[type, Callable[[Any, Tensor], Any]] = {}


def converts(*types: type) -> Callable[[Any], Any]:
    """Note a function as the converter of some types."""

    def note(function: Any) -> Any:
        PARTS.update(dict.fromkeys(types, function))
        return function

    return note


def part(model: Any, X: Tensor) -> Any:
    """Convert a model that is inside another one."""
    refuse(model, "inside another model", type(model) not in PARTS)
    return PARTS[type(model)](model, X)


def refuse(model: Any, what: str, wrong: bool = True) -> None:
    """Say that a model cannot be converted, if something is so."""
    if wrong:
        raise ValueError(f"to_onnx cannot convert {type(model).__name__} {what}")


@converts(Pipeline)
def _pipeline(model: Pipeline, X: Tensor) -> Any:
    for _, step in model.steps:
        X = X if step in (None, "passthrough") else part(step, X)
    return X


@converts(StandardScaler)
def _scaler(model: StandardScaler, X: Tensor) -> Tensor:
    X = X - model.mean_ if model.with_mean else X
    return X if model.scale_ is None else X / model.scale_


@converts(SimpleImputer)
def _imputer(model: SimpleImputer, X: Tensor) -> Tensor:
    refuse(model, "with add_indicator=True", model.add_indicator)
    known, gone = model.statistics_, model.missing_values
    if known.dtype.kind in "OU":  # in a graph missing text is empty
        missing = X.op("Equal", np.array(gone if isinstance(gone, str) else "", dtype=object))
        return X.where(missing, np.where(known == known, known, "")[None])
    missing = X.op("IsNaN") if gone is None or gone != gone else X.op("Equal", float(gone))
    kept = np.flatnonzero(~np.isnan(known))  # columns without any value are left out
    return X.where(missing, np.nan_to_num(known)[None]).op("Gather", kept, axis=1)


@converts(Ridge, LinearRegression, LinearSVR)
def _linear(model: Any, X: Tensor) -> Tensor:
    return X @ np.atleast_2d(model.coef_).T + np.atleast_2d(model.intercept_)


@converts(LinearSVC, RidgeClassifier, LogisticRegression, LinearDiscriminantAnalysis, ClassMeans)
def _linear_classes(model: Any, X: Tensor) -> Classified:
    return _by_decisions(model, _linear(model, X))


def _by_decisions(model: Any, values: Tensor) -> Classified:
    """Classes by decision values, and if the model has probabilities logistic ones."""
    columns = class_columns(values, n := len(model.classes_))
    probabilities = None
    if hasattr(model, "predict_proba"):
        # The two columns of two classes differ by twice the value.
        probabilities = (columns * 0.5 if n == 2 else columns).op("Softmax", axis=1)
    return Classified(columns.codes(), values, probabilities)


@converts(SVR)
def _svr(model: SVR, X: Tensor) -> Tensor:
    """Sum over support vectors of their kernel functions; of two classes, too."""
    return _machine(model, X, model.dual_coef_.T) + model.intercept_


@converts(SVC)
def _svc(model: SVC, X: Tensor) -> Classified:
    refuse(model, "with probability=True", len(model._probA) > 0)
    if (n := len(model.classes_)) == 2:
        values = _svr(model, X)
        # Where the value is 0, libsvm says the second class.
        return Classified(class_columns(values, n).codes(last=True), values)
    first, pairs = np.cumsum([0, *model.n_support_]), list(combinations(range(n), 2))
    dual = np.zeros((len(model.support_), len(pairs)))
    for k, (i, j) in enumerate(pairs):
        for own, row in ((i, j - 1), (j, i)):
            rows = slice(first[own], first[own + 1])
            dual[rows, k] = model.dual_coef_[row, rows]
    ahead, behind = np.eye(n)[np.array(pairs).T]
    values = _machine(model, X, dual) + model.intercept_
    votes = values.op("Greater", 0.0).cast("DOUBLE") @ (ahead - behind) + behind.sum(axis=0)
    sums = values @ (ahead - behind)
    decisions = votes + sums / ((sums.op("Abs") + 1.0) * 3.0)
    codes = (decisions if model.break_ties else votes).codes()
    return Classified(codes, decisions if model.decision_function_shape == "ovr" else values)


def _machine(model: Any, X: Tensor, dual: Array) -> Tensor:
    if model.kernel == "precomputed":
        everywhere = np.zeros((model.shape_fit_[0], dual.shape[1]))
        everywhere[model.support_] = dual
        return X @ everywhere
    refuse(model, f"with kernel={model.kernel!r}", model.kernel not in ("rbf", "linear", "poly"))
    rows, kernel = (
        model.support_vectors_,
        Kernel(model.kernel, model._gamma, model.degree, model.coef0),
    )
    kernel = kernel.centred_on(rows) if model.kernel == "rbf" else kernel
    return kernel_values(kernel, X, rows) @ dual + kernel.constant * dual.sum(axis=0)


@converts(TransformedTargetRegressor)
def _transformed(model: TransformedTargetRegressor, X: Tensor) -> Tensor:
    scaler = model.transformer_
    refuse(model, f"with {type(scaler).__name__}", type(scaler) is not StandardScaler)
    values = part(model.regressor_, X) * np.ravel(1.0 if scaler.scale_ is None else scaler.scale_)
    return values + scaler.mean_ if scaler.with_mean else values


@converts(dummy.DummyRegressor)
def _constant(model: dummy.DummyRegressor, X: Tensor) -> Tensor:
    return X.repeated(np.ravel(model.constant_).astype(np.float64))


@converts(dummy.DummyClassifier)
def _prior(model: dummy.DummyClassifier, X: Tensor) -> Classified:
    refuse(model, f"with strategy={model.strategy!r}", model.strategy in ("uniform", "stratified"))
    shares = X.repeated(model.predict_proba(np.zeros((1, 1)))[0])
    return Classified(shares.codes(), None, shares)


@converts(ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
def _boosting(model: Any, X: Tensor) -> Any:
    refuse(model, "with categorical_features: encode them first", model._preprocessor is not None)
    names = ("left", "right", "feature_idx", "num_threshold", "missing_go_to_left")
    trees = [(k, tree.nodes) for stage in model._predictors for k, tree in enumerate(stage)]
    parts = [(nodes, nodes["is_leaf"] > 0, nodes["value"][:, None], [k]) for k, nodes in trees]
    values = _trees(X, names, parts) + model._baseline_prediction
    if hasattr(model, "classes_"):
        return _by_decisions(model, values)
    return values.op("Exp") if model.loss in ("poisson", "gamma") else values


@converts(
    *(ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
    *(ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
)
def _forest(model: Any, X: Tensor) -> Any:
    refuse(model, "with several targets", model.n_outputs_ > 1)
    trees, classes = [tree.tree_ for tree in model.estimators_], hasattr(model, "classes_")
    # Sums come out in float32, which a target far from 0 would not survive.
    middle = 0.0 if classes else float(trees[0].value[0, 0, 0])
    names = ("left_child", "right_child", "feature", "threshold", "missing_go_to_left")
    parts = [
        (
            tree.__getstate__()["nodes"],
            tree.children_left < 0,
            (tree.value[:, 0] - middle) / len(trees),
            range(tree.value.shape[2]),
        )
        for tree in trees
    ]
    X = X.cast("FLOAT").cast("DOUBLE")  # as scikit-learn's trees see rows
    values = _trees(X, names, parts) + middle
    return Classified(values.codes(), None, values) if classes else values


def _trees(X: Tensor, names: tuple[str, ...], trees: list[Any]) -> Tensor:
    """Sum of trees: nodes with fields, which are leaves, values of all, targets of these."""
    nodes, leaves, values, targets = zip(*trees, strict=True)
    leaf, sizes = np.concatenate(leaves), [len(node) for node in nodes]
    tree, place = np.repeat(np.arange(len(trees)), sizes), np.concatenate([*map(np.arange, sizes)])
    fields = ("truenodeids", "falsenodeids", "featureids", "values", "missing_value_tracks_true")
    columns: dict[str, Any] = {
        f"nodes_{field}": np.where(leaf, 0, np.concatenate([node[name] for node in nodes]))
        for field, name in zip(fields, names, strict=True)
    }
    columns |= {
        "nodes_treeids": tree,
        "nodes_nodeids": place,
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ"),
        "target_treeids": np.repeat(tree[leaf], len(targets[0])),
        "target_nodeids": np.repeat(place[leaf], len(targets[0])),
        "target_ids": np.array(targets)[tree[leaf]].ravel(),
        "target_weights": np.concatenate(values)[leaf].ravel(),
    }
    attributes: dict[str, Any] = {"n_targets": int(np.max(targets)) + 1}
    for name, column in columns.items():
        if name in ("nodes_values", "target_weights"):
            tensor = numpy_helper.from_array(column.astype(np.float64), name)
            attributes[f"{name}_as_tensor"] = tensor
        else:
            attributes[name] = column.tolist()
    return X.op("TreeEnsembleRegressor", domain="ai.onnx.ml", **attributes).cast("DOUBLE")
