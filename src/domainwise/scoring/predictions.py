"""Predictions as a record that scorers can judge, and fits that are told the domains they ask for.

Scorers of scikit-learn call the estimator themselves: they pass no ``sample_domain`` to
``predict``, and leave nothing behind. Here predictions are made first, and scored then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if

from domainwise.arrays import Array
from domainwise.splits.folds import draw_rows

#: Rows whose predictions are held with a model, at most.
MOST_HELD_OUT = 20_000


def takes(method: Any, name: str = "sample_domain") -> bool:
    """Whether a function has an argument of this name."""
    return name in inspect.signature(method).parameters


def fit_with_domains(estimator: Any, X: Any, y: Any, sample_domain: Any, **more: Any) -> Any:
    """Fit an estimator in place; ``sample_domain`` reaches it, or its parts, if they ask for it.

    ``more`` is for those who are known to ask for it.
    """
    with config_context(enable_metadata_routing=True):
        if sample_domain is not None and not asks_for_domains(estimator) and takes(estimator.fit):
            if not hasattr(estimator, "set_fit_request"):
                return estimator.fit(X, y, sample_domain=sample_domain, **more)
            # It has the argument, and nobody has said whether to use it.
            estimator.set_fit_request(sample_domain=True)
        asked = asks_for_domains(estimator) and sample_domain is not None
        return estimator.fit(X, y, **({"sample_domain": sample_domain} if asked else {}), **more)


def asks_for_domains(estimator: Any, method: str = "fit") -> bool:
    """Whether an estimator, or a part of it, has asked for ``sample_domain``."""
    with config_context(enable_metadata_routing=True):
        return bool(get_routing_for_object(estimator).consumes(method, ["sample_domain"]))


class AroundEstimator(MetaEstimatorMixin, BaseEstimator):
    """What is of the same kind as the estimator inside it, and takes the same rows."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags = inner.input_tags
        return tags


def names_likeliest(estimator: Any) -> bool:
    """Whether its classes are those of the largest probability, so that one answer gives both."""
    while type(estimator) is Pipeline:
        estimator = estimator.steps[-1][1]
    return bool(getattr(estimator, "names_likeliest", False))


def _answers(method: str) -> Callable[[Any], bool]:
    return lambda self: self.classes is not None and hasattr(self.estimator, method)


@dataclass(eq=False, repr=False)
class Predictions(BaseEstimator):
    """What an estimator says about some rows; for scorers it stands for the estimator.

    Classes are codes here, so that scores which need a positive class find it: the last of
    ``classes``, which are None for a continuous target. Values are computed when they are asked
    for, and kept. ``sample_domain`` is for estimators that look at a domain's rows together, and
    ``rows`` are those that are asked about; None is all.
    """

    estimator: Any
    X: Any
    classes: Any = None
    sample_domain: Any = None
    rows: Any = None

    @classmethod
    def kept(
        cls,
        classes: Array | None,
        labels: Array,
        probabilities: Array | None,
        decisions: Array | None,
    ) -> Predictions:
        """Predictions that were made before; there is no estimator any more."""
        answers = {"predict_proba": probabilities, "decision_function": decisions}
        given = {name: values for name, values in answers.items() if values is not None}
        told = cls(SimpleNamespace(**given), None, classes)
        told.labels, told.probabilities, told.decisions = labels, probabilities, decisions
        return told

    def _ask(self, method: str) -> Array:
        if self.sample_domain is None:
            return np.asarray(getattr(self.estimator, method)(self.X))
        with config_context(enable_metadata_routing=True):
            call = getattr(self.estimator, method)
            values = np.asarray(call(self.X, sample_domain=self.sample_domain))
        return values if self.rows is None else values[self.rows]

    @cached_property
    def labels(self) -> Array:
        """Predicted classes as they are called, or numbers."""
        if self.classes is None or not names_likeliest(self.estimator):
            return one_column(self._ask("predict"))
        return np.asarray(self.estimator.classes_[self._likely.argmax(axis=1)])

    @cached_property
    def _likely(self) -> Array:
        return self._ask("predict_proba")

    @cached_property
    def probabilities(self) -> Array | None:
        """One column per class; zeros for a class that was not there in training."""
        if not _answers("predict_proba")(self):
            return None
        return self._columns(self._likely, 0.0)

    @cached_property
    def decisions(self) -> Array | None:
        """One value for two classes, positive for the last; one column per class for more."""
        if not _answers("decision_function")(self):
            return None
        values = self._ask("decision_function")
        if len(self.classes) == 2:
            values = values if values.ndim == 1 else values[:, 1] - values[:, 0]
            return values if self.estimator.classes_[-1] == self.classes[-1] else -values
        if values.ndim == 1:
            values = np.column_stack([-values, values])
        return self._columns(values, float(values.min()) - 1.0)

    def _columns(self, values: Array, missing: float) -> Array:
        columns = np.full((len(values), len(self.classes)), missing)
        columns[:, codes_of(self.estimator.classes_, self.classes)] = values
        return columns

    @property
    def classes_(self) -> Array:
        """Codes of the classes."""
        return np.arange(0 if self.classes is None else len(self.classes))

    def predict(self, X: Any) -> Array:
        """Codes of classes, or numbers."""
        return self.labels if self.classes is None else codes_of(self.labels, self.classes)

    @available_if(_answers("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of classes."""
        return self.probabilities

    @available_if(_answers("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Decision values."""
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
    """Predictions for source rows by models that were fitted without their domain.

    Probabilities of the classes, in their order, or one column of predicted targets.
    """

    y: Array  #: codes of classes, or targets
    domain: Array  #: codes of domains
    plain: Array  #: of shape (n_rows, n_outputs), for rows one by one
    context: Array | None = None  #: the same for rows with those of their domain
    members: dict[str, Array] | None = None  #: the same of each member of an ensemble

    @classmethod
    def of(
        cls,
        y: Array,
        domain: Array,
        plain: Array,
        context: Array | None = None,
        members: dict[str, Array] | None = None,
        rows: Array | None = None,
    ) -> HeldOut:
        """Hold some of the rows, in which domains count: at most ``MOST_HELD_OUT``.

        Probabilities are held in single precision, as there may be many classes.
        """
        rows = np.arange(len(y)) if rows is None else rows
        codes = np.unique(domain[rows], return_inverse=True)[1]
        rows = rows[draw_rows(codes, max(MOST_HELD_OUT, 2 * (int(codes.max()) + 1)), 0)]
        dtype = np.float32 if y.dtype.kind in "iu" else np.float64

        def held(values: Array) -> Array:
            return np.asarray(values[rows], dtype=dtype)

        return cls(
            y[rows],
            domain[rows],
            held(plain),
            None if context is None else held(context),
            None if members is None else {name: held(each) for name, each in members.items()},
        )


def one_column(values: Array) -> Array:
    """Predictions side by side, also where an estimator stands them in a column (CatBoost)."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def codes_of(labels: Any, classes: Array) -> Array:
    """Place of each label in ``classes``, which are in any order."""
    labels = np.asarray(labels)
    order = np.argsort(classes)
    place = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
    codes = order[place]
    strange = classes[codes] != labels
    if np.any(strange):
        known = ", ".join(map(str, classes.tolist()))
        raise ValueError(f"class {labels[strange].tolist()[0]!r} is none of {known}")
    return np.asarray(codes)


@dataclass(frozen=True)
class NamedScorer:
    """A scorer of scikit-learn for classes whatever they are called."""

    scorer: Any  #: as :func:`sklearn.metrics.get_scorer` gives it
    classes: Array  #: the positive one last
    name: str = ""  #: of the scorer

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score an estimator, or predictions that it has made."""
        if not isinstance(estimator, Predictions):
            estimator = Predictions(estimator, X, self.classes)
        codes = codes_of(y, self.classes)
        if self.name not in ("accuracy", "balanced_accuracy"):
            return float(self.scorer(estimator, None, codes))
        # A search asks for thousands of these, and scikit-learn mostly checks arguments.
        right = estimator.predict(None) == codes
        if self.name == "accuracy":
            return float(right.mean())
        counts = np.bincount(codes)
        return float((np.bincount(codes, right)[counts > 0] / counts[counts > 0]).mean())
