"""Parts of models that are this package's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV

from domainwise import ensemble, estimators, invariant, ridge
from domainwise.adaptation import SiteAdapter
from domainwise.arrays import Array
from domainwise.arrays.namespace import to_host
from domainwise.calibration.conformal import DomainConformal
from domainwise.calibration.curves import Curve
from domainwise.ensemble.members import Member
from domainwise.estimators.dcmcv import DCMCV, FastDCMCV
from domainwise.estimators.projection import Expansion
from domainwise.export.graph import Classified, Tensor, class_columns, kernel_values, mean_of
from domainwise.export.parts import converts, part, refuse
from domainwise.invariant.search import InvariantSearchCV
from domainwise.models.search import MethodSearch
from domainwise.search.scores import LEAST_PROBABILITY

PROJECTIONS = [getattr(estimators, name) for name in estimators.__all__]


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
def _kernel(model: Any, X: Tensor) -> Tensor:
    K = kernel_values(model.base_kernel, X, getattr(model, "X_fit_", None))
    return model.correct(K - K.over("Mean") - model.column_means)


@converts(invariant.InvariantSVR)
def _svr(model: Any, X: Tensor) -> Tensor:
    return model.on_target_scale(part(model.machine_, part(model.transformer_, X)))


@converts(invariant.InvariantSVC)
def _svc(model: Any, X: Tensor) -> Classified:
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
def _search(model: Any, X: Tensor) -> Any:
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


@converts(ensemble.DomainEnsembleRegressor)
def _ensemble(model: Any, X: Tensor) -> Tensor:
    return _corrected(model, model.on_target_scale(_mix(model, X)))


@converts(ensemble.DomainEnsembleClassifier)
def _ensemble_classes(model: Any, X: Tensor) -> Classified:
    probabilities = _corrected(model, _mix(model, X))
    return Classified(probabilities.codes(), None, probabilities)


@converts(SiteAdapter)
def _adapter(model: Any, X: Tensor) -> Any:
    found = part(model.estimator_, X)
    if not is_classifier(model):
        return _corrected(model, found)
    probabilities, n = found.probabilities, len(model.classes_)
    curve = model.curves_.get("plain")
    if curve is not None:
        probabilities = _probabilities(curve, class_columns(found.decisions, n))
    corrected = _corrected(model, probabilities)
    codes = corrected.codes() if hasattr(model, "corrections_") else found.codes
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
    mean = mean_of([_said(model, Z, member.n_classes) for model in member.estimators])
    return mean if member.curve is None else _probabilities(member.curve, mean)


def _said(model: Any, Z: Tensor, n_classes: int) -> Tensor:
    """What :func:`domainwise.search.scores.outputs` makes of a model."""
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
converts(ensemble.DomainContext)(
    lambda model, X: refuse(model, "(it looks at all rows of a domain, a graph at one by one)")
)
