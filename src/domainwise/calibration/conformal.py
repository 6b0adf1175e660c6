"""DomainConformal: prediction sets and intervals for new domains, around any estimator."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils import indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array, ArrayLike, CrossValidator, Estimator, MaybeArray
from domainwise.calibration.quantiles import DomainQuantiles, class_scores
from domainwise.checks import inputs
from domainwise.checks.arguments import CONSTRAINTS
from domainwise.checks.inputs import refuse_no_rows
from domainwise.checks.signatures import arguments
from domainwise.scoring.predictions import (
    AroundEstimator,
    Predictions,
    asks_for_domains,
    codes_of,
    fit_with_domains,
)
from domainwise.splits.folds import LeaveDomainsOut, Split, domain_folds

#: What sets and intervals promise, by how they were calibrated.
PROMISES = {"cv": "approximate", "split": "guaranteed"}


def calibration_split(
    y: Array, domains: Array | None, classification: bool, cv: Any = None
) -> Split:
    """Rows to learn from, and rows of domains that serve nothing but calibration.

    Half of the domains, drawn at random, or those that the first split of ``cv`` leaves out.
    """
    n_domains = 1 if domains is None else len(np.unique(domains))
    if n_domains < 2:
        raise ValueError(
            "calibration='split' keeps domains apart: name two, or more, in sample_domain"
        )
    assert domains is not None
    if cv is None:
        cv = LeaveDomainsOut(n_domains // 2, n_repeats=1, random_state=0)
    train, held = domain_folds(y, domains, classification=classification, cv=cv)[0][0]
    shared = np.intersect1d(domains[train], domains[held])
    if len(shared):
        raise ValueError(
            f"cv={cv!r} puts rows of {len(shared)} domains on both sides: with "
            "calibration='split' it must leave whole domains out"
        )
    return train, held


@arguments
class DomainConformal(AroundEstimator):
    """Prediction sets and intervals that hold on new domains, for any classifier or regressor.

    Rows of domains that a model has not seen tell how far off it is there. A set holds the classes,
    and an interval the values, that are no stranger than most of those rows were; domains count the
    same, however many rows they have, and one more domain might hold anything.

    Parameters
    ----------
    estimator : classifier or regressor
        Classes are judged by its probabilities, if it has any, else by its decision values, else
        by its predictions. A :class:`sklearn.frozen.FrozenEstimator` stays as it was fitted, and
        all domains given to ``fit`` calibrate it, with ``calibration="split"``.
    cv : int, splitter or iterable, default=None
        None leaves domains out one at a time, or in ten groups. With ``calibration="split"`` the
        domains that its first split leaves out calibrate; None takes half of them at random.
    calibration : {"cv", "split"}, default="cv"
        "cv" scores each domain by the estimator fitted without it, and fits to all rows in the end:
        the coverage is *approximate*. "split" calibrates on domains that serve nothing else: the
        coverage is *guaranteed*, for a random row of a new domain and on average over domains, if
        new domains are drawn as these were.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to all rows; with "split" to those of the domains that do not calibrate.
    calibration_domains_ : ndarray
        The domains whose rows were scored.
    promise_ : {"approximate", "guaranteed"}
        What sets and intervals promise.
    classes_ : ndarray
        Class labels, of a classifier.

    See Also
    --------
    domainwise.DomainEnsembleClassifier : Has such sets by itself.

    Notes
    -----
    With K domains no coverage beyond K / (K + 1) can be kept. Asked for more, sets hold all classes
    and intervals are infinite, with a warning. Coverage is an average: some domains are covered
    less often. Sets can be empty, where a row is strange whatever its class. Models that choose
    among many candidates, or interpolate, need "split": "cv" may then cover too little.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import DomainConformal
    >>> data = make_synthetic(n_domains=10, random_state=0)
    >>> model = DomainConformal(LogisticRegression())
    >>> model = model.fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> model.predict_set(data.data[:3], coverage=0.9).shape, model.promise_
    ((3, 2), 'approximate')
    """

    estimator: Estimator = field(kw_only=False)
    cv: CrossValidator = None
    calibration: str = "cv"

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__predict: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__predict_proba: ClassVar[dict[str, Any]] = {"sample_domain": True}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: CONSTRAINTS[name] for name in ("cv", "calibration")
    }

    def fit(self, X: ArrayLike, y: ArrayLike, sample_domain: MaybeArray = None) -> Self:
        """Fit the estimator, and score it on rows of domains that it has not seen.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes or numbers.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. None makes all rows one domain, which allows little.

        Returns
        -------
        self : object
        """
        self._validate_params()
        classification = is_classifier(self.estimator)
        if not classification and not is_regressor(self.estimator):
            raise ValueError(f"estimator={self.estimator!r} must be a classifier or a regressor")
        refuse_no_rows(X)
        (X,) = indexable(X)
        n = inputs.count_rows(X)
        if n < 2:
            raise ValueError(f"n_samples={n}: rows to learn from, and others to score, are needed")
        domain = inputs.check_sample_domain(sample_domain, n, "delta")
        if classification:
            target = inputs.check_classes(y, n)
            self.classes_ = target.names
            y = target.names[target.codes]
        else:
            target = inputs.check_target(y, n, "rbf", least_classes=1)
            if target.values.shape[1] > 1:
                raise ValueError("y has several columns: an interval is of one number")
            y = target.values[:, 0]
        together = sample_domain is not None and asks_for_domains(self.estimator, "predict")
        kinds = ("plain", "context") if together else ("plain",)
        scores: dict[str, list[Array]] = {kind: [] for kind in kinds}
        tested = []
        for train, held in self._splits(np.asarray(y), domain.codes, classification, n):
            self.estimator_ = model = self._fitted(X, y, sample_domain, train)
            for kind in kinds:
                given = inputs.take_rows(sample_domain, held) if kind == "context" else None
                told = Predictions(model, inputs.take_rows(X, held), target.names, given)
                scores[kind].append(self._scores(told, inputs.take_rows(y, held)))
            tested.append(held)
        if self.calibration == "cv":
            self.estimator_ = self._fitted(X, y, sample_domain, np.arange(n))
        domains = domain.codes[np.concatenate(tested)]
        self.calibration_domains_ = domain.names[np.unique(domains)]
        self.promise_ = PROMISES[self.calibration]
        self._quantiles = {
            kind: DomainQuantiles.of(np.concatenate(scores[kind]), domains) for kind in kinds
        }
        return self

    def _splits(self, y: Array, domains: Array | None, classification: bool, n: int) -> list[Split]:
        everything = np.arange(n)
        if isinstance(self.estimator, FrozenEstimator):
            if self.calibration != "split":
                raise ValueError(
                    "a FrozenEstimator cannot be fitted without a domain: use calibration='split', "
                    "with domains that it has not seen"
                )
            return [(everything, everything)]
        if self.calibration == "split":
            return [calibration_split(y, domains, classification, self.cv)]
        return domain_folds(y, domains, classification=classification, cv=self.cv)[0]

    def _fitted(self, X: Any, y: Any, sample_domain: Any, rows: Array) -> Any:
        given = None if sample_domain is None else inputs.take_rows(sample_domain, rows)
        with inputs.quiet_about_domains():
            return fit_with_domains(
                clone(self.estimator), inputs.take_rows(X, rows), inputs.take_rows(y, rows), given
            )

    def _scores(self, told: Predictions, y: Any) -> Array:
        """How strange what was seen is for the model."""
        if told.classes is None:
            return np.abs(np.asarray(y, dtype=np.float64).ravel() - told.labels)
        return _strange(told)[np.arange(len(told.labels)), codes_of(y, told.classes)]

    def _told(self, X: Any, sample_domain: Any) -> tuple[Predictions, DomainQuantiles]:
        check_is_fitted(self)
        refuse_no_rows(X)
        which = "context" if sample_domain is not None else "plain"
        if which not in self._quantiles:
            which, sample_domain = "plain", None
        classes = getattr(self, "classes_", None)
        return Predictions(self.estimator_, X, classes, sample_domain), self._quantiles[which]

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Predict; ``sample_domain`` reaches an estimator that looks at a domain's rows together.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        sample_domain : array-like of shape (n_rows,), default=None

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        return self._told(X, sample_domain)[0].labels

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the estimator's probabilities, which are not changed by the calibration.

        Parameters
        ----------
        X, sample_domain
            As in :meth:`predict`.
        """
        return np.asarray(self._told(X, sample_domain)[0].probabilities)

    @available_if(lambda self: is_classifier(self.estimator))
    def predict_set(
        self, X: ArrayLike, sample_domain: MaybeArray = None, *, coverage: float = 0.9
    ) -> Array:
        """Return the classes that each row may have.

        Parameters
        ----------
        X, sample_domain
            As in :meth:`predict`.
        coverage : float, default=0.9
            Share of the rows of a new domain, on average over domains, whose class is in its set.

        Returns
        -------
        sets : ndarray of bool of shape (n_rows, n_classes)
            In the order of ``classes_``; larger coverages give larger sets.
        """
        told, quantiles = self._told(X, sample_domain)
        return quantiles.sets(_strange(told), coverage)

    @available_if(lambda self: is_regressor(self.estimator))
    def predict_interval(
        self, X: ArrayLike, sample_domain: MaybeArray = None, *, coverage: float = 0.9
    ) -> Array:
        """Return the lower and the upper end of an interval for each row.

        Parameters
        ----------
        X, sample_domain, coverage
            As in :meth:`predict_set`.

        Returns
        -------
        ends : ndarray of shape (n_rows, 2)
        """
        told, quantiles = self._told(X, sample_domain)
        return quantiles.intervals(told.labels, coverage)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the estimator's own score of its predictions.

        Parameters
        ----------
        X, y
            Rows, and their classes or numbers.
        """
        check_is_fitted(self)
        return float(self.estimator_.score(X, y))

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        """Their names, if X has string column names."""
        return np.asarray(self.estimator_.feature_names_in_)


def _strange(told: Predictions) -> Array:
    """How strange each class would be for each row."""
    if told.probabilities is None and told.decisions is None:
        return 1.0 - (told.predict(None)[:, None] == told.classes_)
    return class_scores(told.probabilities, told.decisions)
