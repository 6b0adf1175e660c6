"""DomainConformal: prediction sets and intervals for new domains, with any estimator."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils import indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from domainwise.base import inputs
from domainwise.base.arrays import Array, ArrayLike, CrossValidator, Estimator, MaybeArray
from domainwise.base.inputs import Labels
from domainwise.base.signatures import documented_arguments
from domainwise.held_out.calibration.quantiles import (
    DomainQuantiles,
    PredictionIntervals,
    PredictionSets,
    nonconformity,
    promise,
    scores_by_class,
)
from domainwise.held_out.folds import LeaveDomainsOut, Split, domain_folds, without_rows
from domainwise.held_out.scoring.predictions import (
    MetaEstimator,
    Predictions,
    fit_with_domains,
    requests_domains,
)


def calibration_split(
    X: Any, y: Array, domain_codes: Array | None, is_classification: bool, cv: Any = None
) -> Split:
    """Return training rows, and rows from domains that are used only for calibration.

    Calibration domains are a random half of all domains, or those in the first test set of ``cv``.
    """
    n_domains = 1 if domain_codes is None else len(np.unique(domain_codes))
    if n_domains < 2:
        raise ValueError(
            "calibration='split' needs at least 2 domains in sample_domain; got 1. Pass the domain "
            "of each row, or use calibration='cv'."
        )
    assert domain_codes is not None
    if cv is None:
        cv = LeaveDomainsOut(n_domains // 2, n_repeats=1, random_state=0)
    options: Any = {"classification": is_classification, "cv": cv, "X": X}
    train, test = domain_folds(y, domain_codes, **options)[0][0]
    shared_domains = np.intersect1d(domain_codes[train], domain_codes[test])
    if len(shared_domains):
        raise ValueError(
            f"cv={cv!r} splits the rows of {len(shared_domains)} of {n_domains} domains between "
            "training and calibration. With calibration='split', set cv to a splitter that holds "
            "out whole domains, such as LeaveDomainsOut."
        )
    return train, test


class DomainMetaEstimator(PredictionSets, PredictionIntervals, MetaEstimator):
    """A meta-estimator that fits a classifier or regressor with some domains held out."""

    classes_: Array

    __metadata_request__predict: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__predict_proba: ClassVar[dict[str, Any]] = {"sample_domain": True}

    def _check_inputs(
        self, X: Any, y: Any, sample_domain: Any, sample_weight: Any
    ) -> tuple[Any, Array, Any, Array | None, Labels, Labels]:
        """Check arguments and rows, and set ``classes_``.

        Return X, y, domains and weights of the rows whose weight is not 0, and their labels.
        """
        self._validate_params()
        is_instance = hasattr(self.estimator, "fit") and not isinstance(self.estimator, type)
        is_classification = is_instance and is_classifier(self.estimator)
        if not is_classification and not (is_instance and is_regressor(self.estimator)):
            raise ValueError(
                f"estimator must be a classifier or a regressor; got {self.estimator!r}."
            )
        inputs.check_is_table(X)
        (X,) = indexable(X)
        n_rows = inputs.count_rows(X)
        if n_rows < 2:
            raise ValueError(
                f"X has n_samples={n_rows}, but at least 2 rows are needed to hold some of them "
                "out. Pass more rows."
            )
        weights, X, y, sample_domain = inputs.rows_with_weight(sample_weight, X, y, sample_domain)
        n_rows = inputs.count_rows(X)
        domain = inputs.check_sample_domain(sample_domain, n_rows, "delta")
        self.__dict__.pop("classes_", None)  # from an earlier fit
        if is_classification:
            target = inputs.check_classes(y, n_rows)
            self.classes_ = target.names
            return X, target.names[target.codes], sample_domain, weights, target, domain
        target = inputs.check_target(y, n_rows, "rbf", min_classes=1)
        if target.values.shape[1] > 1:
            raise ValueError(
                f"y must have one column; got {target.values.shape[1]}. Fit one "
                f"{type(self).__name__} per column."
            )
        return X, target.values[:, 0], sample_domain, weights, target, domain

    def _held_out_predictions(
        self, X: Any, y: Array, sample_domain: Any, weights: Any, train: Array, test: Array
    ) -> dict[str, Predictions]:
        """Predict test rows one by one ("plain") and, if supported, together ("context")."""
        model = fit_rows(self.estimator, X, y, sample_domain, train, weights)
        domains_by_mode = {"plain": None}
        if sample_domain is not None and requests_domains(self.estimator, "predict"):
            domains_by_mode["context"] = inputs.take_rows(sample_domain, test)
        args = (model, inputs.take_rows(X, test), getattr(self, "classes_", None))
        return {mode: Predictions(*args, domains) for mode, domains in domains_by_mode.items()}

    def _predictions(self, X: Any, sample_domain: Any) -> Predictions:
        """Predict with the fitted estimator; domains are passed only if it uses them."""
        check_is_fitted(self)
        inputs.check_is_table(X)
        domains = sample_domain if "context" in self._quantiles else None
        return Predictions(self.estimator_, X, getattr(self, "classes_", None), domains)

    @property
    def n_features_in_(self) -> int:
        """Number of features seen during fit."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        """Names of the features, if X has string column names."""
        return np.asarray(self.estimator_.feature_names_in_)


def fit_rows(
    estimator: Any, X: Any, y: Any, sample_domain: Any, indices: Any = None, weights: Any = None
) -> Any:
    """Fit a clone to the rows with these indices, or to all rows; do not warn about domains."""
    if indices is not None:
        X, y = inputs.take_rows(X, indices), inputs.take_rows(y, indices)
        sample_domain = None if sample_domain is None else inputs.take_rows(sample_domain, indices)
        weights = None if weights is None else weights[indices]
    with inputs.quiet_about_domains():
        return fit_with_domains(clone(estimator), X, y, sample_domain, weights)


@documented_arguments
class DomainConformal(DomainMetaEstimator):
    r"""Prediction sets and intervals that are valid on new domains, for any predictor.

    The errors on held-out domains estimate the errors on new domains. Sets and intervals contain
    all classes and values whose nonconformity score (such as the absolute error) is at most a
    threshold, which most held-out rows do not exceed. All domains have equal weights, regardless of
    their size. The new domain, whose errors are unknown, gets the same weight.

    Parameters
    ----------
    estimator : classifier or regressor
        Classes are scored by its probabilities if available, otherwise by its decision values or
        its predictions. A :class:`sklearn.frozen.FrozenEstimator` is not fitted again; it needs
        ``calibration="split"``, and all domains passed to ``fit`` are then used for calibration.
    cv : int, splitter or iterable, default=None
        None holds out one domain at a time; more than ten domains are held out in ten groups. With
        ``calibration="split"``, only the first split is used, and None draws half of the domains.
    calibration : {"cv", "split"}, default="cv"
        "cv" scores each domain with the estimator fitted to the other domains, and then fits the
        estimator to all rows: the coverage is *approximate*. "split" calibrates on domains that are
        not used for training: the coverage is *guaranteed*, for a random row from a new domain and
        on average over domains, if new domains come from the same distribution.

    Attributes
    ----------
    estimator_ : estimator
        The estimator fitted to all rows or, with "split", to all domains not in
        ``calibration_domains_``.
    calibration_domains_ : ndarray
        The domains whose rows were scored.
    promise_ : {"approximate", "approximate, few sites", "guaranteed"}
        Whether the coverage of sets and intervals is approximate or guaranteed. With three to eight
        domains and "cv", it is approximate and rests on few sites.
    classes_ : ndarray
        Class labels of a classifier.

    See Also
    --------
    domainwise.DomainEnsembleClassifier : An ensemble with built-in prediction sets.

    Notes
    -----
    A set contains the classes, or an interval the values, with a nonconformity score of at most a
    threshold q. If :math:`F_k` is the distribution of the scores in held-out domain k of K, q is
    the smallest value for which

    .. math:: \frac{1}{K + 1} \sum_k F_k(q) \ge \text{coverage}.

    With K domains, a coverage of at most K / (K + 1) can be guaranteed. For a higher coverage,
    "split" returns sets with all classes and infinite intervals, with a warning. "cv" does so only
    with one or two domains. With three or more, it widens the pooled quantile of the scores until,
    on average, each domain is covered by the scores of the others; this threshold is used if it is
    smaller than q. The coverage is an average, and is lower on some domains. A set is empty if a
    row is unusual for all classes. Use "split" for models that interpolate their training rows or
    choose among many candidates, because the coverage of "cv" may then be too low.

    References
    ----------
    R. Dunn, L. Wasserman and A. Ramdas (2023), "Distribution-free prediction sets for two-layer
    hierarchical models", Journal of the American Statistical Association, arXiv:1809.07441.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import DomainConformal
    >>> data = make_synthetic(n_domains=50, random_state=0)
    >>> X, y, domain = data.data, data.target, data.sample_domain
    >>> is_source = domain < 30  # the other twenty domains are unseen
    >>> model = DomainConformal(LogisticRegression())
    >>> model = model.fit(X[is_source], y[is_source], sample_domain=domain[is_source])
    >>> sets = model.predict_set(X[~is_source], coverage=0.8)
    >>> covered = sets[y[~is_source][:, None] == model.classes_].mean()
    >>> print(f"coverage {covered:.2f}, {sets.sum(axis=1).mean():.2f} classes on average")
    coverage 0.81, 1.23 classes on average
    """

    estimator: Estimator = field(kw_only=False)
    cv: CrossValidator = None
    calibration: str = "cv"

    _parameter_constraints: ClassVar[dict[str, Any]] = {"estimator": "no_validation"}

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Fit the estimator, and score it on rows from held-out domains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes or numbers.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. None treats all rows as one domain, which limits the coverage.
        {row_weights}

        {returns_self}
        """
        cv = without_rows(self.cv, sample_weight)
        labels = y, sample_domain, sample_weight
        X, y, sample_domain, weights, target, domain = self._check_inputs(X, *labels)
        is_classification, all_rows = target.names is not None, np.arange(len(y))
        if isinstance(self.estimator, FrozenEstimator):
            if self.calibration != "split":
                raise ValueError(
                    f"calibration={self.calibration!r} fits the estimator again, which a "
                    "FrozenEstimator does not allow. Use calibration='split', and pass domains "
                    "that the estimator was not fitted to."
                )
            splits = [(all_rows, all_rows)]
        elif self.calibration == "split":
            splits = [calibration_split(X, y, domain.codes, is_classification, cv)]
        else:
            splits, _ = domain_folds(y, domain.codes, classification=is_classification, cv=cv, X=X)
        scores_by_mode: dict[str, list[Array]] = {}
        output_name = ""
        for train, test in splits:
            predictions_by_mode = self._held_out_predictions(
                X, y, sample_domain, weights, train, test
            )
            for mode, predictions in predictions_by_mode.items():
                outputs = predictions.outputs(y[test])
                output_name, _, target_scores = nonconformity(outputs, predictions.classes)
                scores_by_mode.setdefault(mode, []).append(target_scores)
            self.estimator_ = predictions_by_mode["plain"].estimator
        if self.calibration == "cv":
            self.estimator_ = fit_rows(self.estimator, X, y, sample_domain, weights=weights)
        rows = np.concatenate([test for _, test in splits])
        domain_codes, weights = domain.codes[rows], None if weights is None else weights[rows]
        self.calibration_domains_ = domain.names[np.unique(domain_codes)]
        self.promise_ = promise(self.calibration, len(self.calibration_domains_))
        quantiles: Any = DomainQuantiles.from_scores
        if self.calibration == "cv":
            options: Any = {"are_probabilities": output_name == "probabilities"}
            quantiles = partial(DomainQuantiles.approximately, **options)
        self._quantiles = {
            mode: quantiles(np.concatenate(split_scores), domain_codes, weights)
            for mode, split_scores in scores_by_mode.items()
        }
        return self

    def _class_scores(self, X: Any, sample_domain: Any) -> Array:
        return scores_by_class(self._predictions(X, sample_domain).outputs(), self.classes_)[1]

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Predict with the fitted estimator.

        {new_rows}
        sample_domain : array-like of shape (n_rows,), default=None
            The domain of each row, for estimators that use it.

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        return self._predictions(X, sample_domain).labels

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the estimator's probabilities; the calibration does not change them.

        {as_in_predict}

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            One column per class, in the order of ``classes_``.
        """
        return np.asarray(self._predictions(X, sample_domain).probabilities)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the score of the fitted estimator.

        Parameters
        ----------
        X, y
            Rows, and their classes or numbers.

        Returns
        -------
        score : float
            Accuracy, or R² for a regressor.
        """
        check_is_fitted(self)
        return float(self.estimator_.score(X, y))
