"""InvariantSearchCV: a grid search that evaluates the kernel once per split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, check_scoring, r2_score
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from domainwise.arrays import Array, ArrayLike, CrossValidator, Estimator, MaybeArray, Scoring
from domainwise.calibration.curves import class_columns
from domainwise.checks.arguments import CONSTRAINTS
from domainwise.checks.inputs import (
    check_sample_domain,
    check_target,
    plain_array,
    quiet_about_domains,
    validate_rows,
)
from domainwise.checks.signatures import arguments
from domainwise.estimators.projection import one_thread_for_few
from domainwise.invariant.path import SVM_ARGUMENTS, kernel_groups, last_step, score_group
from domainwise.scoring.predictions import AroundEstimator
from domainwise.search.search import Searched, record_search
from domainwise.search.smooth import SmoothScore, grouped_scores
from domainwise.splits.folds import domain_folds

_Grid = Mapping[str, Sequence[Any]]


@arguments
class InvariantSearchCV(AroundEstimator, Searched):
    """Grid search for InvariantSVC and InvariantSVR with the kernel evaluated once per split.

    Gives the scores and the winner of :class:`sklearn.model_selection.GridSearchCV`. For one
    kernel, candidates that differ in ``domain_weight``, ``conditional``, ``C``, ``epsilon``,
    ``class_weight`` or ``tol`` share its values; two N x N matrices are held at a time.

    Scores on a few domains are noisy, and a single winner follows the noise. With ``n_average``
    above 1 the best machines vote (their mean is taken, for regression): of each kernel and weight
    the best ``C`` is kept, and of these the best ``n_average``.

    Parameters
    ----------
    estimator : InvariantSVC, InvariantSVR or Pipeline
        A pipeline ends with one of the two; the steps before it are fitted once per split.
    param_grid : dict or list of dict
        As in GridSearchCV.
    cv : int, splitter or iterable, default=None
        None leaves out one domain at a time. Splitters get the domains as ``groups``.
    scoring : str or callable, default=None
        A scikit-learn scorer; None is the estimator's own score.
    n_average : int, default=1
        How many machines predict together.
    n_jobs : int, default=None
        Splits and kernels evaluated at a time.

    Attributes
    ----------
    best_params_ : dict
        The candidate with the best mean score; the first of equals.
    best_score_ : float
        Its mean score.
    best_index_ : int
        Its place in ``cv_results_``.
    best_estimator_ : estimator
        The estimator with these arguments, fitted to all rows.
    members_ : list of dict
        Arguments of the machines that predict together, the best first.
    estimators_ : list of estimator
        These machines, fitted to all rows.
    cv_results_ : dict
        ``params``, ``split0_test_score`` ..., ``mean_test_score``, ``std_test_score`` and
        ``rank_test_score``, as in GridSearchCV.
    n_splits_ : int
        Number of splits.

    See Also
    --------
    domainwise.InvariantSVC : The classifier.

    Notes
    -----
    Candidates that are not exact (``solver="fast"``, or ``"auto"`` beyond its limit) have no such
    values to share, and are fitted one by one.

    Examples
    --------
    >>> from domainwise import InvariantSVC
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import InvariantSearchCV
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = InvariantSearchCV(InvariantSVC(), {"domain_weight": [0, 0.1], "C": [1, 10]})
    >>> search = search.fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> sorted(search.best_params_)
    ['C', 'domain_weight']
    """

    estimator: Estimator = field(kw_only=False)
    param_grid: _Grid | Sequence[_Grid] = field(kw_only=False)
    cv: CrossValidator = None
    scoring: Scoring = None
    n_average: int = 1
    n_jobs: int | None = None

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: CONSTRAINTS[name] for name in ("cv", "scoring", "n_average", "n_jobs")
    }

    def fit(self, X: ArrayLike, y: ArrayLike, sample_domain: MaybeArray = None) -> Self:
        """Score every candidate on held-out domains, and fit the best to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.

        Returns
        -------
        self : object
        """
        self._validate_params()
        last_step(self.estimator)
        candidates = list(ParameterGrid(self.param_grid))
        groups = kernel_groups(self.estimator, candidates)
        # A data frame stays one, for steps that choose columns by their names.
        validate_rows(self, X, numbers=False, skip_check_array=True)
        rows: Any = X
        if not hasattr(X, "iloc"):
            rows = check_array(X, dtype=None, ensure_all_finite="allow-nan")
        labels = plain_array(y)
        target = check_target(
            labels, len(rows), "delta" if is_classifier(self.estimator) else "rbf"
        )
        if target.names is not None:
            labels = target.names[target.codes]
        given = None if sample_domain is None else plain_array(sample_domain)
        splits, _ = domain_folds(
            labels,
            None if given is None else check_sample_domain(given, len(rows)).codes,
            classification=is_classifier(self.estimator),
            cv=self.cv,
            max_splits=None,
        )
        scorer = self.scoring
        if not isinstance(scorer, SmoothScore):
            scorer = check_scoring(self.estimator, scoring=scorer)
        about = (rows, labels, given)
        with one_thread_for_few(rows):
            found = Parallel(n_jobs=self.n_jobs)(
                delayed(score_group)(
                    self.estimator, [candidates[i] for i in group], *about, split, scorer
                )
                for split, group in product(splits, groups)
            )
        scores = grouped_scores(scorer, groups, found, [test for _, test in splits])
        record_search(self, candidates, scores, arguments=False)
        self.members_ = self._members(candidates)
        self.estimators_: list[Any] = []
        for member in self.members_:
            model = clone(self.estimator).set_params(**clone(member, safe=False))
            with quiet_about_domains(), config_context(enable_metadata_routing=True):
                self.estimators_.append(model.fit(rows, labels, sample_domain=given))
        self.best_estimator_: Any = self.estimators_[0]
        return self

    def _check_new(self, X: Any) -> None:
        """Refuse other columns than those of fit, or in another order."""
        check_is_fitted(self)
        validate_rows(self, X, numbers=False, reset=False, skip_check_array=True)

    def _members(self, candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The best machine of each kernel and weight, and of these the best ``n_average``."""
        prefix, _ = last_step(self.estimator)
        varied = {prefix + name for name in SVM_ARGUMENTS}
        order = np.argsort(self.cv_results_["rank_test_score"], kind="stable")
        best: dict[str, dict[str, Any]] = {}
        for i in order:
            kind = {k: v for k, v in candidates[i].items() if k not in varied}
            best.setdefault(repr(sorted(kind.items(), key=lambda item: item[0])), candidates[i])
        return list(best.values())[: self.n_average]

    @property
    def classes_(self) -> Array:
        """Class labels."""
        return np.asarray(self.best_estimator_.classes_)

    def predict(self, X: ArrayLike) -> Array:
        """Predict with all members: by vote, or by the mean of their numbers.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        """
        self._check_new(X)
        if len(self.estimators_) == 1:
            return np.asarray(self.best_estimator_.predict(X))
        if not is_classifier(self.estimator):
            return np.mean([model.predict(X) for model in self.estimators_], axis=0)
        return np.asarray(self.classes_[class_columns(self.decision_function(X)).argmax(axis=1)])

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: ArrayLike) -> Array:
        """Return decision values; of several machines their votes, and below one vote their mean.

        The mean decision value is squeezed into less than half a vote, so that it orders rows
        with the same votes and changes no majority.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        """
        self._check_new(X)
        if len(self.estimators_) == 1:
            return np.asarray(self.best_estimator_.decision_function(X))
        mean = np.mean([model.decision_function(X) for model in self.estimators_], axis=0)
        squeezed = mean / (3.0 * (np.abs(mean) + 1.0))
        predicted = np.array([model.predict(X) for model in self.estimators_])
        votes = (predicted[:, :, None] == self.classes_).sum(axis=0)
        if mean.ndim == 1:
            return np.asarray(votes[:, 1] - votes[:, 0] + squeezed)
        return np.asarray(votes + squeezed)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the machines' mean probabilities.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        """
        self._check_new(X)
        return np.mean([model.predict_proba(X) for model in self.estimators_], axis=0)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Score the predictions by ``scoring``.

        Parameters
        ----------
        X, y
            Rows, and their classes or numbers.
        """
        check_is_fitted(self)
        if self.scoring is None:
            measure = accuracy_score if is_classifier(self.estimator) else r2_score
            return float(measure(y, self.predict(X)))
        return float(check_scoring(self, scoring=self.scoring)(self, X, y))
