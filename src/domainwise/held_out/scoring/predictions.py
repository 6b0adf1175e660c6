"""Stored predictions for scorers, and functions that pass domains to estimators that use them.

scikit-learn scorers call ``predict`` without ``sample_domain``, and do not return predictions.
Here, predictions are computed first and scored later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import has_fit_parameter

from domainwise.base.arrays import Array, read_only
from domainwise.base.inputs import as_sortable, plain_array
from domainwise.base.messages import listed, quoted
from domainwise.held_out.folds import sample_rows

#: Maximum number of rows whose predictions are stored with a model.
MAX_HELD_OUT = 20_000


def has_argument(method: Any, name: str = "sample_domain") -> bool:
    """Return whether a function or method has an argument with this name."""
    return name in inspect.signature(method).parameters


def fit_with_domains(
    estimator: Any,
    X: Any,
    y: Any,
    sample_domain: Any,
    sample_weight: Array | None = None,
    **fit_params: Any,
) -> Any:
    """Fit an estimator in place; pass ``sample_domain`` if the estimator or a step requests it.

    Weights are passed to the estimator and to all steps that accept them.
    """
    has_requests = True  # that are not only for weights
    if sample_weight is not None:
        parts = (estimator, *estimator.get_params().values())
        has_requests = any("_metadata_request" in getattr(part, "__dict__", ()) for part in parts)
    with config_context(enable_metadata_routing=True):
        if sample_weight is not None and request_weights(estimator):
            fit_params["sample_weight"] = sample_weight
        if sample_domain is not None and not requests_domains(estimator):
            if not has_argument(estimator.fit):
                sample_domain = None
            elif hasattr(estimator, "set_fit_request"):
                estimator.set_fit_request(sample_domain=True)
        if sample_domain is not None:
            fit_params["sample_domain"] = sample_domain
        model = estimator.fit(read_only(X), read_only(y), **fit_params)
    if not has_requests:
        _remove_requests(model, set())
    return model


def _remove_requests(value: Any, done: set[int]) -> None:
    """Remove the requests of :func:`request_weights`, with which models cannot be saved."""
    if id(value) in done:
        return
    done.add(id(value))
    values: Any = value if isinstance(value, list | tuple) else ()
    if isinstance(value, BaseEstimator):
        vars(value).pop("_metadata_request", None)
        values = vars(value).values()
    for nested in values:
        _remove_requests(nested, done)


def request_weights(estimator: Any) -> bool:
    """Let all steps that accept weights request them, and return whether there is such a step."""
    predictor = estimator.steps[-1][1] if type(estimator) is Pipeline else estimator
    is_accepted = has_argument(predictor.fit, "sample_weight")
    if hasattr(predictor, "predict") and not is_accepted:
        raise ValueError(
            f"{type(predictor).__name__} does not accept sample_weight. Use another estimator, or "
            "omit sample_weight."
        )
    for part in (estimator, *estimator.get_params().values()):
        if hasattr(part, "set_fit_request") and has_fit_parameter(part, "sample_weight"):
            part.set_fit_request(sample_weight=True)
            is_accepted = True
    return is_accepted


def requests_domains(estimator: Any, method: str = "fit") -> bool:
    """Return whether an estimator, or one of its steps, requests ``sample_domain``."""
    with config_context(enable_metadata_routing=True):
        return bool(get_routing_for_object(estimator).consumes(method, ["sample_domain"]))


def weights_classes(estimator: Any) -> bool:
    """Return whether an estimator weights classes, according to its parameters."""
    suffixes = ("class_weight", "auto_class_weights", "scale_pos_weight")
    parameters = estimator.get_params().items()
    return any(v not in (None, 1) for name, v in parameters if name.endswith(suffixes))


class MetaEstimator(MetaEstimatorMixin, BaseEstimator):
    """A meta-estimator with the type and input tags of its estimator."""

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner_tags = self.estimator.__sklearn_tags__()
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "input_tags"):
            setattr(tags, name, getattr(inner_tags, name))
        return tags


def applied_rule(estimator: Any) -> Any:
    """Return the rule by which an estimator turns probabilities into classes; None if unknown.

    The result is a :class:`~domainwise.held_out.calibration.decisions.DecisionRule`.
    """
    while type(estimator) is Pipeline:
        estimator = estimator.steps[-1][1]
    return getattr(estimator, "applied_rule", None)


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a model predicts for some rows, with their targets (None if they are not needed)."""

    target: Any = None  #: class labels or numbers
    prediction: Any = None  #: class labels or numbers
    probabilities: Any = None  #: one column per class; None if the model has none
    decisions: Any = None  #: decision values, as :attr:`Predictions.decisions`; None without them
    domain: Any = None  #: the domain to which all rows belong, if it is known
    weight: Any = None  #: weights of rows; None without weights

    @property
    def row_weights(self) -> Array:
        """Weights of rows, which are 1 without weights."""
        return np.ones(len(self.target)) if self.weight is None else self.weight

    def take(self, rows: Any) -> Self:
        """Select rows."""
        names = ("target", "prediction", "probabilities", "decisions", "weight")
        arrays = {name: getattr(self, name) for name in names}
        selected = {name: array[rows] for name, array in arrays.items() if array is not None}
        return replace(self, **selected)


def _provides(method: str) -> Callable[[Any], bool]:
    return lambda self: self.classes is not None and hasattr(self.estimator, method)


@dataclass(eq=False, repr=False)
class Predictions(BaseEstimator):
    """Predictions of an estimator for some rows, which scorers use in place of the estimator.

    Classes are predicted as codes. The last of ``classes`` is the positive class; ``classes`` is
    None for a continuous target. Values are computed when they are first used. ``sample_domain`` is
    for estimators that predict the rows of a domain together. In this case, ``rows`` are the
    indices of the rows that are scored, or None for all rows.
    """

    estimator: Any
    X: Any
    classes: Any = None
    sample_domain: Any = None
    rows: Any = None

    @classmethod
    def from_outputs(cls, classes: Array | None, outputs: Outputs) -> Predictions:
        """Create predictions from the result of :meth:`outputs`."""
        methods = {"predict_proba": outputs.probabilities, "decision_function": outputs.decisions}
        estimator = SimpleNamespace(**{name: v for name, v in methods.items() if v is not None})
        predictions = cls(estimator, None, classes)
        predictions.labels = outputs.prediction
        predictions.probabilities, predictions.decisions = methods.values()
        return predictions

    def outputs(self, target: Any = None) -> Outputs:
        """Return all outputs; an error if their shapes do not fit to the targets."""
        outputs = Outputs(target, self.labels, self.probabilities, self.decisions)
        for name, values in {} if target is None else vars(outputs).items():
            shape, n_rows = np.shape(values), len(target)
            is_invalid = shape[:1] != (n_rows,) or (name == "prediction" and len(shape) > 1)
            if values is not None and is_invalid:
                noun = "predictions" if name == "prediction" else name
                raise ValueError(f"the model returned {noun} of shape {shape} for {n_rows} rows")
        return outputs

    def _call(self, method: str) -> Array:
        X = read_only(self.X)
        if self.sample_domain is None:
            return plain_array(getattr(self.estimator, method)(X), f"the result of {method}")
        with config_context(enable_metadata_routing=True):
            call = getattr(self.estimator, method)
            outputs = plain_array(call(X, sample_domain=self.sample_domain), method)
        return outputs if self.rows is None else outputs[self.rows]

    @cached_property
    def labels(self) -> Array:
        """Predicted classes or numbers."""
        rule = None if self.classes is None else applied_rule(self.estimator)
        if rule is None or not _provides("predict_proba")(self):
            labels = as_sortable(self._call("predict"), "the result of predict")
            if self.classes is None and labels.dtype.kind not in "biuf":
                raise ValueError(f"predict returned {labels.dtype} values instead of numbers")
            # CatBoost returns a 2-D column.
            return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        return np.asarray(self.estimator.classes_[rule.codes(self._predict_proba)])

    @cached_property
    def _predict_proba(self) -> Array:
        values, n_classes = self._call("predict_proba"), len(self.estimator.classes_)
        if values.dtype.kind not in "biuf" or values.shape[1:] != (n_classes,):
            raise ValueError(
                f"predict_proba returned {values.dtype} values of shape {values.shape} for "
                f"{n_classes} classes"
            )
        if not np.allclose(values.sum(axis=-1), 1.0, atol=1e-3) or (values < 0).any():
            raise ValueError("predict_proba returned rows that are not probabilities with sum 1")
        return values

    @cached_property
    def probabilities(self) -> Array | None:
        """One column per class; zeros for a class that was not seen in fit."""
        return self._align(self._predict_proba, 0.0) if _provides("predict_proba")(self) else None

    @cached_property
    def decisions(self) -> Array | None:
        """One value per row (positive for the last of two classes), or one column per class."""
        if not _provides("decision_function")(self):
            return None
        decisions = self._call("decision_function")
        if len(self.classes) == 2:
            decisions = decisions if decisions.ndim == 1 else decisions[:, 1] - decisions[:, 0]
            return decisions if self.estimator.classes_[-1] == self.classes[-1] else -decisions
        if decisions.ndim == 1:
            decisions = np.column_stack([-decisions, decisions])
        return self._align(decisions, float(decisions.min()) - 1.0)

    def _align(self, values: Array, fill_value: float) -> Array:
        """Return one column per class, filled with ``fill_value`` for classes not seen in fit."""
        columns = np.full((len(values), len(self.classes)), fill_value)
        columns[:, codes_of(self.estimator.classes_, self.classes)] = values
        return columns

    @property
    def classes_(self) -> Array:
        """Codes of the classes."""
        return np.arange(0 if self.classes is None else len(self.classes))

    def predict(self, X: Any) -> Array:
        """Return class codes, or numbers."""
        return self.labels if self.classes is None else codes_of(self.labels, self.classes)

    @available_if(_provides("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities."""
        return self.probabilities

    @available_if(_provides("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Return decision values."""
        return self.decisions

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.classes is None:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags


@dataclass(frozen=True)
class HeldOut:
    """Predictions for source rows by models that were fitted to other domains.

    Predictions are probabilities, with one column per class, or a column of predicted values.
    """

    y: Array  #: class codes, or target values
    domain: Array  #: domain codes
    plain: Array  #: predictions of shape (n_rows, n_columns), for rows predicted one by one
    context: Array | None = None  #: the same for rows predicted together with their domain
    members: dict[str, Array] | None = None  #: like ``plain``, for each ensemble member
    weights: Array | None = None  #: weights of rows; None without weights
    within: Array | None = None  #: predictions of differences inside a domain, if they are useful

    @classmethod
    def from_rows(
        cls,
        y: Array,
        domain: Array,
        plain: Array,
        context: Array | None = None,
        members: dict[str, Array] | None = None,
        rows: Array | None = None,
        weights: Array | None = None,
    ) -> HeldOut:
        """Select at most ``MAX_HELD_OUT`` rows (or two per domain), drawn evenly from the domains.

        Only rows with indices in ``rows`` are used; None uses all rows. Probabilities are stored in
        single precision, because there may be many classes.
        """
        rows = cls.stored_rows(domain, rows)
        dtype = np.float32 if y.dtype.kind in "iu" else np.float64
        context = None if context is None else context[rows].astype(dtype)
        if members is not None:
            members = {name: outputs[rows].astype(dtype) for name, outputs in members.items()}
        weights = None if weights is None else weights[rows]
        return cls(y[rows], domain[rows], plain[rows].astype(dtype), context, members, weights)

    @staticmethod
    def stored_rows(domain: Array, rows: Array | None = None) -> Array:
        """Return the indices of the rows that are stored."""
        rows = np.arange(len(domain)) if rows is None else rows
        return np.asarray(rows[sample_rows(domain[rows], MAX_HELD_OUT)])


def codes_of(labels: Any, classes: Array) -> Array:
    """Return the index of each label in ``classes``, which may be in any order."""
    labels = np.asarray(labels)
    order = np.argsort(classes)
    positions = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
    codes = order[positions]
    is_unknown = classes[codes] != labels
    if np.any(is_unknown):
        unknown_class = quoted(labels[is_unknown].ravel()[0])
        choices = listed([*map(quoted, classes)], 12, ", ")
        raise ValueError(f"class {unknown_class} is unknown. The classes are {choices}.")
    return np.asarray(codes)


@dataclass(frozen=True)
class NamedScorer:
    """A scikit-learn scorer that accepts classes of any type."""

    scorer: Any  #: from :func:`sklearn.metrics.get_scorer`
    classes: Array  #: the last one is the positive class
    name: str = ""  #: name of the scorer

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score an estimator, or stored predictions."""
        if not isinstance(estimator, Predictions):
            estimator = Predictions(estimator, X, self.classes)
        class_codes = codes_of(y, self.classes)
        # Searches and bootstrap intervals compute thousands of scores; scikit-learn's checks would
        # take most of the time.
        if self.name == "roc_auc" and len(self.classes) == 2:
            values = estimator.decisions
            if values is None and estimator.probabilities is not None:
                values = estimator.probabilities[:, 1]
            if values is not None and np.isfinite(values).all():
                return roc_auc(class_codes == 1, values, sample_weight)
        if self.name not in ("accuracy", "balanced_accuracy"):
            options = {} if sample_weight is None else {"sample_weight": sample_weight}
            return float(self.scorer(estimator, None, class_codes, **options))
        is_correct = estimator.predict(None) == class_codes
        if self.name == "accuracy":
            return float(np.average(is_correct, weights=sample_weight))
        return balanced_accuracy(class_codes, is_correct, sample_weight)


def roc_auc(is_event: Array, values: Array, weights: Array | None = None) -> float:
    """Return the area under the ROC curve of events; NaN without events or without other rows."""
    if is_event.all() or not is_event.any():
        return float("nan")
    event_weights = None if weights is None else weights[is_event]
    shares = shares_below(values, is_event, weights)
    return float(np.average(shares, weights=event_weights))


def shares_below(values: Array, is_event: Array, weights: Array | None = None) -> Array:
    """Return, for each event, the share of other rows with smaller values; equal ones are half."""
    order = np.argsort(values[~is_event], kind="stable")
    other_values = values[~is_event][order]
    steps = np.arange(len(order) + 1.0)
    if weights is not None:
        steps[1:] = np.cumsum(weights[~is_event][order])
    ends = [np.searchsorted(other_values, values[is_event], side) for side in ("left", "right")]
    return np.asarray((steps[ends[0]] + steps[ends[1]]) / (2.0 * steps[-1]))


def balanced_accuracy(class_codes: Array, is_correct: Array, weights: Array | None = None) -> float:
    """Return the mean recall of the classes that occur; the arrays have an entry for each row."""
    counts = np.bincount(class_codes, weights)
    n_correct = np.bincount(class_codes, is_correct if weights is None else is_correct * weights)
    return float((n_correct[counts > 0] / counts[counts > 0]).mean())
