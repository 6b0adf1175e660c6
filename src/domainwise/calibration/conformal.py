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
from domainwise.calibration.quantiles import (
    DomainQuantiles,
    PredictionIntervals,
    PredictionSets,
    class_scores,
)
from domainwise.checks import inputs
from domainwise.checks.arguments import CONSTRAINTS
from domainwise.checks.inputs import Labels
from domainwise.checks.signatures import arguments
from domainwise.scoring.predictions import (
    AroundEstimator,
    Predictions,
    codes_of,
    fit_with_domains,
    requests_domains,
)
from domainwise.splits.folds import LeaveDomainsOut, Split, domain_folds

#: Kind of coverage that sets and intervals have, by the value of ``calibration``.
PROMISES = {"cv": "approximate", "split": "guaranteed"}


def calibration_split(
    y: Array, domains: Array | None, classification: bool, cv: Any = None
) -> Split:
    """Return training rows, and rows of the domains that are used for calibration only.

    These are half of the domains, drawn at random, or those held out in the first split of ``cv``.
    """
    n_domains = 1 if domains is None else len(np.unique(domains))
    if n_domains < 2:
        raise ValueError(
            "calibration='split' needs at least 2 domains in sample_domain, got 1. Pass the domain "
            "of each row, or use calibration='cv'."
        )
    assert domains is not None
    if cv is None:
        cv = LeaveDomainsOut(n_domains // 2, n_repeats=1, random_state=0)
    train, test = domain_folds(y, domains, classification=classification, cv=cv)[0][0]
    shared = np.intersect1d(domains[train], domains[test])
    if len(shared):
        raise ValueError(
            f"cv={cv!r} puts rows of {len(shared)} domains into both parts of a split. With "
            "calibration='split', pass a cv that holds out whole domains, such as LeaveDomainsOut."
        )
    return train, test


class AroundPredictor(PredictionSets, PredictionIntervals, AroundEstimator):
    """A meta-estimator that fits a classifier or regressor without some of the domains."""

    classes_: Array

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__predict: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__predict_proba: ClassVar[dict[str, Any]] = {"sample_domain": True}

    def _checked(self, X: Any, y: Any, sample_domain: Any) -> tuple[Any, Array, Labels, Labels]:
        """Check arguments and rows; return X, y, targets and domains. Sets ``classes_``."""
        self._validate_params()
        classification = is_classifier(self.estimator)
        if not classification and not is_regressor(self.estimator):
            raise ValueError(f"estimator={self.estimator!r} must be a classifier or a regressor")
        inputs.check_is_table(X)
        (X,) = indexable(X)
        n = inputs.count_rows(X)
        if n < 2:
            raise ValueError(f"X has n_samples={n}: at least 2 rows are needed to hold some out")
        domain = inputs.check_sample_domain(sample_domain, n, "delta")
        if hasattr(self, "classes_"):  # from an earlier fit
            del self.classes_
        if classification:
            target = inputs.check_classes(y, n)
            self.classes_ = target.names
            return X, target.names[target.codes], target, domain
        target = inputs.check_target(y, n, "rbf", min_classes=1)
        if target.values.shape[1] > 1:
            raise ValueError(f"y has several columns. Fit one {type(self).__name__} per column.")
        return X, target.values[:, 0], target, domain

    def _held_out_predictions(
        self, X: Any, y: Array, sample_domain: Any, train: Array, test: Array
    ) -> dict[str, Predictions]:
        """Predict test rows one by one ("plain") and, if domains are used, in "context"."""
        model = fit_rows(self.estimator, X, y, sample_domain, train)
        domains = {"plain": None}
        if sample_domain is not None and requests_domains(self.estimator, "predict"):
            domains["context"] = inputs.take_rows(sample_domain, test)
        X_test, classes = inputs.take_rows(X, test), getattr(self, "classes_", None)
        return {kind: Predictions(model, X_test, classes, d) for kind, d in domains.items()}

    def _predictions(self, X: Any, sample_domain: Any) -> Predictions:
        """Predict with the fitted estimator; domains are passed only if it uses them."""
        check_is_fitted(self)
        inputs.check_is_table(X)
        domains = sample_domain if "context" in self._quantiles else None
        return Predictions(self.estimator_, X, getattr(self, "classes_", None), domains)

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        """Names of the features, if X has string column names."""
        return np.asarray(self.estimator_.feature_names_in_)


def fit_rows(estimator: Any, X: Any, y: Any, sample_domain: Any, rows: Any = None) -> Any:
    """Fit a clone to some of the rows, or to all, without a warning about their domains."""
    if rows is not None:
        X, y = inputs.take_rows(X, rows), inputs.take_rows(y, rows)
        sample_domain = None if sample_domain is None else inputs.take_rows(sample_domain, rows)
    with inputs.quiet_about_domains():
        return fit_with_domains(clone(estimator), X, y, sample_domain)


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
        ``calibration="split"`` all domains passed to ``fit`` are used to calibrate it.
    cv : int, splitter or iterable, default=None
        None holds out domains one at a time, or in ten groups. With ``calibration="split"`` the
        held-out domains of its first split are used; None uses half of all domains, at random.
    calibration : {"cv", "split"}, default="cv"
        "cv" scores each domain by the estimator fitted without it, and then fits to all rows: the
        coverage is *approximate*. "split" calibrates on domains that are not used for training: the
        coverage is *guaranteed*, for a random row of a new domain and on average over domains, if
        new domains come from the same distribution.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to all rows; with "split", to the rows of all but the calibration domains.
    calibration_domains_ : ndarray
        The domains whose rows were scored.
    promise_ : {"approximate", "guaranteed"}
        Whether the coverage of sets and intervals is approximate or guaranteed.
    classes_ : ndarray
        Class labels of a classifier.

    See Also
    --------
    domainwise.DomainEnsembleClassifier : An ensemble that has such sets built in.

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
        classification, rows = target.names is not None, np.arange(len(y))
        if isinstance(self.estimator, FrozenEstimator):
            if self.calibration != "split":
                raise ValueError(
                    "a FrozenEstimator cannot be fitted again without a domain. Use "
                    "calibration='split', with domains that it was not fitted to."
                )
            splits = [(rows, rows)]
        elif self.calibration == "split":
            splits = [calibration_split(y, domain.codes, classification, self.cv)]
        else:
            splits, _ = domain_folds(y, domain.codes, classification=classification, cv=self.cv)
        scores: dict[str, list[Array]] = {}
        for train, test in splits:
            predictions = self._held_out_predictions(X, y, sample_domain, train, test)
            for kind, predicted in predictions.items():
                scores.setdefault(kind, []).append(_observed_scores(predicted, y[test]))
            self.estimator_ = predictions["plain"].estimator
        if self.calibration == "cv":
            self.estimator_ = fit_rows(self.estimator, X, y, sample_domain)
        domains = domain.codes[np.concatenate([test for _, test in splits])]
        self.calibration_domains_ = domain.names[np.unique(domains)]
        self.promise_ = PROMISES[self.calibration]
        self._quantiles = {
            kind: DomainQuantiles.of(np.concatenate(parts), domains)
            for kind, parts in scores.items()
        }
        return self

    def _class_scores(self, X: Any, sample_domain: Any) -> Array:
        return _class_scores(self._predictions(X, sample_domain))

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Predict; ``sample_domain`` is passed on if the estimator uses it.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        sample_domain : array-like of shape (n_rows,), default=None

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        return self._predictions(X, sample_domain).labels

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
            One column per class, in the order of ``classes_``.
        """
        return np.asarray(self._predictions(X, sample_domain).probabilities)

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
