"""DomainConformal: prediction sets and intervals for new domains, around any estimator."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array, ArrayLike, CrossValidator, Estimator, MaybeArray
from domainwise.calibration.quantiles import DomainQuantiles, class_scores
from domainwise.checks.arguments import CONSTRAINTS
from domainwise.checks.inputs import refuse_no_rows, take_rows
from domainwise.checks.signatures import arguments
from domainwise.scoring.predictions import (
    AroundPredictor,
    Predictions,
    codes_of,
    fit_rows,
)
from domainwise.splits.folds import LeaveDomainsOut, Split, domain_folds

#: What sets and intervals promise, by how they were calibrated.
PROMISES = {"cv": "approximate", "split": "guaranteed"}


def calibration_split(
    y: Array, domains: Array | None, classification: bool, cv: Any = None
) -> Split:
    """Rows to train on, and rows of domains that are used for calibration only.

    Half of the domains, drawn at random, or the held-out ones of the first split of ``cv``.
    """
    n_domains = 1 if domains is None else len(np.unique(domains))
    if n_domains < 2:
        raise ValueError("calibration='split' needs at least 2 domains in sample_domain, got 1")
    assert domains is not None
    if cv is None:
        cv = LeaveDomainsOut(n_domains // 2, n_repeats=1, random_state=0)
    train, test = domain_folds(y, domains, classification=classification, cv=cv)[0][0]
    shared = np.intersect1d(domains[train], domains[test])
    if len(shared):
        raise ValueError(
            f"cv={cv!r} puts rows of {len(shared)} domains on both sides: with "
            "calibration='split' it must hold out whole domains"
        )
    return train, test


@arguments
class DomainConformal(AroundPredictor):
    """Prediction sets and intervals that hold on new domains, for any classifier or regressor.

    Rows of held-out domains measure how large errors on new domains are. A set contains the
    classes, and an interval the values, that do not deviate more than most of those rows did.
    Domains have equal weights, however many rows they have, and the new domain, whose errors are
    unknown, has the weight of one.

    Parameters
    ----------
    estimator : classifier or regressor
        Classes are scored by its probabilities, if it has any, else by its decision values, else
        by its predictions. A :class:`sklearn.frozen.FrozenEstimator` is not fitted again; with
        ``calibration="split"`` all domains passed to ``fit`` calibrate it.
    cv : int, splitter or iterable, default=None
        None holds out domains one at a time, or in ten groups. With ``calibration="split"`` the
        held-out domains of its first split calibrate; None takes half of them at random.
    calibration : {"cv", "split"}, default="cv"
        "cv" scores each domain by the estimator fitted without it, and then fits to all rows: the
        coverage is *approximate*. "split" calibrates on domains that are not used for training: the
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
    With K domains the coverage is at most K / (K + 1). For a larger one sets contain all classes
    and intervals are infinite, with a warning. Coverage is an average: some domains are covered
    less often. A set is empty if a row is unusual for all classes. Models that choose among many
    candidates, or interpolate, need "split": "cv" may then cover too little.

    References
    ----------
    R. Dunn, L. Wasserman and A. Ramdas (2023), "Distribution-free prediction sets for two-layer
    hierarchical models", Journal of the American Statistical Association.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: CONSTRAINTS[name] for name in ("cv", "calibration")
    }

    def fit(self, X: ArrayLike, y: ArrayLike, sample_domain: MaybeArray = None) -> Self:
        """Fit the estimator, and score it on rows of held-out domains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes or numbers.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. None makes all rows one domain, which limits the coverage.

        Returns
        -------
        self : object
        """
        X, y, target, domain = self._checked(X, y, sample_domain)
        classification, n = target.names is not None, len(y)
        kinds = self._kinds(sample_domain)
        scores: dict[str, list[Array]] = {kind: [] for kind in kinds}
        tested = []
        for train, test in self._splits(y, domain.codes, classification, n):
            self.estimator_ = model = fit_rows(self.estimator, X, y, sample_domain, train)
            for kind in kinds:
                domains = take_rows(sample_domain, test) if kind == "context" else None
                predictions = Predictions(model, take_rows(X, test), target.names, domains)
                scores[kind].append(_observed_scores(predictions, y[test]))
            tested.append(test)
        if self.calibration == "cv":
            self.estimator_ = fit_rows(self.estimator, X, y, sample_domain, np.arange(n))
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

    def _predictions(self, X: Any, sample_domain: Any) -> tuple[Predictions, DomainQuantiles]:
        check_is_fitted(self)
        refuse_no_rows(X)
        kind = "context" if sample_domain is not None else "plain"
        if kind not in self._quantiles:
            kind, sample_domain = "plain", None
        classes = getattr(self, "classes_", None)
        return Predictions(self.estimator_, X, classes, sample_domain), self._quantiles[kind]

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Predict; ``sample_domain`` is passed to an estimator that uses the rows of a domain.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        sample_domain : array-like of shape (n_rows,), default=None

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        return self._predictions(X, sample_domain)[0].labels

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the estimator's probabilities, which are not changed by the calibration.

        Parameters
        ----------
        X, sample_domain
            As in :meth:`predict`.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Those of the estimator.
        """
        return np.asarray(self._predictions(X, sample_domain)[0].probabilities)

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
        predictions, quantiles = self._predictions(X, sample_domain)
        return quantiles.sets(_class_scores(predictions), coverage)

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
        predictions, quantiles = self._predictions(X, sample_domain)
        return quantiles.intervals(predictions.labels, coverage)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the estimator's own score of its predictions.

        Parameters
        ----------
        X, y
            Rows, and their classes or numbers.

        Returns
        -------
        score : float
            Accuracy, or R² of a regressor.
        """
        check_is_fitted(self)
        return float(self.estimator_.score(X, y))


def _observed_scores(predictions: Predictions, y: Array) -> Array:
    """Nonconformity of the observed targets: the error, or the score of the class."""
    if predictions.classes is None:
        return np.abs(y - predictions.labels)
    return _class_scores(predictions)[np.arange(len(y)), codes_of(y, predictions.classes)]


def _class_scores(predictions: Predictions) -> Array:
    """Nonconformity of each class for each row."""
    if predictions.probabilities is None and predictions.decisions is None:
        return 1.0 - (predictions.predict(None)[:, None] == predictions.classes_)
    return class_scores(predictions.probabilities, predictions.decisions)
