"""Converters of models, by type, in float64.

Of scikit-learn's, those are here that skl2onnx converts with losses: it rounds support vectors,
leaves and filled values to float32, and has no missing text.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from onnx import numpy_helper
from sklearn import dummy, ensemble
from sklearn.base import is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from domainwise import ensemble as own_ensemble
from domainwise import estimators, invariant, ridge
from domainwise.adaptation import SiteAdapter
from domainwise.arrays import Array
from domainwise.arrays.namespace import to_host
from domainwise.calibration.conformal import DomainConformal
from domainwise.calibration.curves import Curve
from domainwise.ensemble.members import Member
from domainwise.ensemble.symmetric import (
    SymmetricBoostingClassifier,
    SymmetricBoostingRegressor,
)
from domainwise.estimators.dcmcv import DCMCV, FastDCMCV
from domainwise.estimators.projection import Expansion
from domainwise.export.graph import Classified, Tensor, class_columns, kernel_values, mean_of
from domainwise.invariant.search import InvariantSearchCV
from domainwise.kernels.functions import Kernel
from domainwise.models.registry import ClassMeans
from domainwise.models.search import MethodSearch
from domainwise.search.scores import LEAST_PROBABILITY

#: By exact type, what turns rows into a :class:`Tensor`, of a classifier into :class:`Classified`.
PARTS: dict[type, Callable[[Any, Tensor], Any]] = {}


def converts(*types: type) -> Callable[[Any], Any]:
    """Register a function as the converter of some types."""

    def register(function: Any) -> Any:
        PARTS.update(dict.fromkeys(types, function))
        return function

    return register


def part(model: Any, X: Tensor) -> Any:
    """Convert a model that is inside another one."""
    refuse(model, "inside another model", type(model) not in PARTS)
    return PARTS[type(model)](model, X)


def refuse(model: Any, what: str, wrong: bool = True) -> None:
    """Raise an error that names a model which cannot be converted, if something is wrong."""
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
    fills, marker = model.statistics_, model.missing_values
    if fills.dtype.kind in "OU":  # in a graph missing text is empty
        missing = X.op("Equal", np.array(marker if isinstance(marker, str) else "", dtype=object))
        return X.where(missing, np.where(fills == fills, fills, "")[None])
    is_nan = marker is None or marker != marker
    missing = X.op("IsNaN") if is_nan else X.op("Equal", float(marker))
    columns = np.flatnonzero(~np.isnan(fills))  # those without any value are dropped
    return X.where(missing, np.nan_to_num(fills)[None]).op("Gather", columns, axis=1)


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


@converts(SymmetricBoostingClassifier, SymmetricBoostingRegressor)
def _symmetric(model: Any, X: Tensor) -> Any:
    n_trees, n_leaves, n_outputs = model.leaves_.shape
    chosen = X.op("Gather", model.features_.ravel(), axis=1)
    above = chosen.op("Greater", model.thresholds_.ravel()).cast("DOUBLE")
    above = above.op("Reshape", np.array([-1, *model.features_.shape]))
    leaf = above @ (2.0 ** np.arange(model.features_.shape[1])[::-1])
    places = leaf.cast("INT64") + n_leaves * np.arange(n_trees)
    values = places.taken_from(model.leaves_.reshape(-1, n_outputs))
    values = values.op("ReduceSum", np.array([1]), keepdims=0) + model.start_
    return _by_decisions(model, values) if hasattr(model, "classes_") else values


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


PROJECTIONS = [getattr(m, name) for m in (estimators.exact, estimators.fast) for name in m.__all__]


@converts(*PROJECTIONS, DCMCV, FastDCMCV, invariant.InvariantFeatures)
def _projection(model: Any, X: Tensor) -> Tensor:
    return _expanded(model.expansion, X)


def _expanded(function: Expansion, X: Tensor) -> Tensor:
    rows = None if function.landmarks is None else _host(function.landmarks)
    values = kernel_values(function.kernel, X, rows) @ _host(function.dual)
    return values + _host(function.intercept)


def _host(values: Any) -> Array:
    return np.asarray(to_host(values), dtype=np.float64)


@converts(invariant.InvariantKernel)
def _invariant_kernel(model: Any, X: Tensor) -> Tensor:
    K = kernel_values(model.base_kernel, X, getattr(model, "X_fit_", None))
    return model.correct(K - K.over("Mean") - model.column_means)


@converts(invariant.InvariantSVR)
def _invariant_svr(model: Any, X: Tensor) -> Tensor:
    return model.on_target_scale(part(model.machine_, part(model.transformer_, X)))


@converts(invariant.InvariantSVC)
def _invariant_svc(model: Any, X: Tensor) -> Classified:
    output = part(model.machine_, part(model.transformer_, X))
    if not model.probability:
        return output
    calibrated = part(model.calibration_.model, output.decisions / model.calibration_.scale)
    return Classified(output.codes, output.decisions, calibrated.probabilities)


def _ridge_values(model: Any, X: Tensor) -> Tensor:
    # A model that was fitted in batches is finalized first, as predict does.
    parts = [_expanded(function, X) for function in model.finalize().expansions_]
    return mean_of(parts, [1.0] * len(parts))


@converts(ridge.InvariantRidgeCV)
def _ridge(model: Any, X: Tensor) -> Tensor:
    return _corrected(model, _ridge_values(model, X))


@converts(ridge.InvariantRidgeClassifierCV)
def _ridge_classes(model: Any, X: Tensor) -> Classified:
    columns = class_columns(values := _ridge_values(model, X), len(model.classes_))
    curve = vars(model).get("curve_")
    probabilities = curve and _probabilities(curve, columns)
    if not hasattr(model, "corrections_"):
        return Classified(columns.codes(), values, probabilities)
    corrected = _corrected(model, probabilities)
    logs = corrected.op("Max", 1e-300).op("Log")
    decisions = logs @ np.array([[-1.0], [1.0]]) if len(model.classes_) == 2 else logs
    return Classified(corrected.codes(), decisions, corrected)


def _corrected(model: Any, outputs: Tensor) -> Tensor:
    """Outputs with the correction of a model that was adapted to a site."""
    if not hasattr(model, "corrections_"):
        return outputs
    prior, correction = model.priors_["plain"], model.corrections_["plain"]
    if not is_classifier(model):
        level, slope = correction
        return outputs * (1.0 + slope) + (level - slope * prior.centre)
    weighted = outputs * np.exp(correction)
    return weighted / weighted.over("Sum")


def _probabilities(curve: Curve, values: Tensor) -> Tensor:
    return (values * curve.slope + curve.bias).op("Softmax", axis=1)


@converts(InvariantSearchCV)
def _invariant_search(model: Any, X: Tensor) -> Any:
    outputs = [part(member, X) for member in model.estimators_]
    if len(outputs) == 1 or not is_classifier(model):
        return outputs[0] if len(outputs) == 1 else mean_of(outputs)
    n, mean = len(model.classes_), mean_of([output.decisions for output in outputs])
    votes = mean_of(
        [output.codes.taken_from(np.eye(n)) for output in outputs], [1.0] * len(outputs)
    )
    votes = votes @ np.array([[-1.0], [1.0]]) if n == 2 else votes
    decisions = votes + mean / ((mean.op("Abs") + 1.0) * 3.0)
    probabilities = None
    if hasattr(model, "predict_proba"):
        probabilities = mean_of([output.probabilities for output in outputs])
    return Classified(class_columns(decisions, n).codes(), decisions, probabilities)


@converts(own_ensemble.DomainEnsembleRegressor)
def _ensemble(model: Any, X: Tensor) -> Tensor:
    return _corrected(model, model.on_target_scale(_mix(model, X)))


@converts(own_ensemble.DomainEnsembleClassifier)
def _ensemble_classes(model: Any, X: Tensor) -> Classified:
    probabilities = _corrected(model, _mix(model, X))
    return Classified(probabilities.codes(), None, probabilities)


@converts(SiteAdapter)
def _adapter(model: Any, X: Tensor) -> Any:
    output = part(model.estimator_, X)
    if not is_classifier(model):
        return _corrected(model, output)
    probabilities, n = output.probabilities, len(model.classes_)
    curve = model.curves_.get("plain")
    if curve is not None:
        probabilities = _probabilities(curve, class_columns(output.decisions, n))
    corrected = _corrected(model, probabilities)
    codes = corrected.codes() if hasattr(model, "corrections_") else output.codes
    return Classified(codes, None, corrected)


def _mix(model: Any, X: Tensor) -> Tensor:
    """Predictions of the members for rows one by one, averaged."""
    Z = (X - model.domain_context_.mean_) / model.domain_context_.scale_
    low, high = model.feature_limits
    Z = Z.where(Z.op("IsNaN"), 0.0).op("Max", low).op("Min", high)
    parts = []
    for name in model.weights_:
        try:
            parts.append(_member(model.members_[name], Z))
        except ValueError as error:
            refuse(model, f"with the member {name!r}: {error}")
    return mean_of(parts, list(model.weights_.values()))


def _member(member: Member, Z: Tensor) -> Tensor:
    Z = Z if member.clip is None else (Z / member.clip).op("Tanh") * member.clip
    mean = mean_of([_class_scores(model, Z, member.n_classes) for model in member.estimators])
    return mean if member.curve is None else _probabilities(member.curve, mean)


def _class_scores(model: Any, Z: Tensor, n_classes: int) -> Tensor:
    """Outputs of a member as :func:`domainwise.search.scores.outputs` has them."""
    output = part(model, Z)
    if not n_classes:
        return output
    seen = np.asarray(model.classes_, dtype=np.intp)
    if hasattr(model, "decision_function"):
        columns = class_columns(output.decisions, len(seen))
        least = columns.over("Min").op("Min", 0.0)
    else:
        columns = output.probabilities.op("Max", LEAST_PROBABILITY).op("Log")
        least = Z.repeated(np.log([LEAST_PROBABILITY]))
    # Classes that it has not seen have the least of all values.
    place = np.full(n_classes, len(seen))
    place[seen] = np.arange(len(seen))
    return columns.op("Concat", least, axis=1).op("Gather", place, axis=1)


#: What these hold, by the attribute that holds it, is what predicts.
WRAPPERS: dict[type, str] = {
    **dict.fromkeys((MethodSearch, DomainConformal), "estimator_"),
    **dict.fromkeys((GridSearchCV, RandomizedSearchCV), "best_estimator_"),
    FrozenEstimator: "estimator",
}
converts(own_ensemble.DomainContext)(
    lambda model, X: refuse(model, "(it needs all rows of a domain; a graph predicts row by row)")
)
