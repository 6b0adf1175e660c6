"""A search that evaluates the kernel once per split for a whole path of invariant machines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn import config_context
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, ParameterGrid, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from domainwise._validation import check_sample_domain
from domainwise.gram import DenseGram
from domainwise.gram.tiles import kernel_matrix
from domainwise.invariant._correction import correction, domain_factor, domain_rows
from domainwise.invariant._kernel import (
    centred_cross,
    check_invariance_labels,
    corrected_gram,
    resolved_kernel,
    symmetric,
)
from domainwise.invariant._machines import InvariantMachine
from domainwise.labels import LabelSpace, RowLabels
from domainwise.selection._splitters import LeaveDomainsOut

Array = NDArray[Any]

#: Arguments of InvariantSVC and InvariantSVR along which kernel values are used again.
SVM_ARGUMENTS = ("C", "epsilon", "class_weight", "tol")
PATH_ARGUMENTS = (*SVM_ARGUMENTS, "domain_weight", "conditional")


@dataclass
class KernelPath:
    """Kernel values of one split, and every invariant kernel that follows from them.

    Attributes
    ----------
    gram : ndarray of shape (N, N)
        Centred kernel matrix of the training rows.
    cross : ndarray of shape (n, N)
        Kernel values between held-out and training rows, centred with the training means.
    tolerance : float
        See :func:`~domainwise.invariant._correction.correction`.
    """

    gram: Array
    cross: Array
    tolerance: float
    _factors: dict[bool, tuple[Array, Array, Array]] = field(default_factory=dict)

    @classmethod
    def evaluate(cls, machine: Any, X: Array, X_new: Array) -> KernelPath:
        """Evaluate a machine's kernel among training rows, and between new rows and those."""
        kernel = resolved_kernel(machine, X)
        labels = RowLabels(LabelSpace(len(X)), None, None)
        if kernel.name == "precomputed":
            gram, rows = DenseGram(X.astype(np.float64), labels, X.dtype), None
        else:
            rows = kernel.prepare(X)
            gram = DenseGram(kernel_matrix(kernel, rows), labels, X.dtype)
        K = symmetric(gram.K)
        return cls(K, centred_cross(kernel, X_new, rows, gram.row_means), gram.tolerance)

    def add_domains(self, machine: Any, y: Any, sample_domain: Any) -> None:
        """Multiply the kernel with the domain factor that the machine's arguments ask for."""
        if machine.conditional in self._factors:
            return
        n = len(self.gram)
        domain, target = check_invariance_labels(machine, y, sample_domain, n)
        labels = domain_rows(
            n,
            domain,
            target,
            kernel=machine.domain_kernel,
            gamma=machine.domain_gamma,
            epsilon=machine.domain_epsilon,
        )
        F = domain_factor(labels, machine.domain_epsilon)
        KF = self.gram @ F
        self._factors[machine.conditional] = (F.T @ KF, KF, self.cross @ F)

    def kernels(self, weight: float, conditional: bool) -> tuple[Array, Array]:
        """Return the invariant kernel of the training rows, and of new rows with those."""
        if weight == 0:
            return self.gram, self.cross
        inner, KF, crossF = self._factors[conditional]
        A, _ = correction(inner, weight, self.tolerance)
        images = KF @ A
        return corrected_gram(self.gram, images), self.cross - (crossF @ A) @ images.T


class InvariantSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Grid search for InvariantSVC and InvariantSVR with the kernel evaluated once per split.

    Gives the scores and the winner of :class:`sklearn.model_selection.GridSearchCV`. For one
    kernel, candidates that differ in ``domain_weight``, ``conditional``, ``C``, ``epsilon``,
    ``class_weight`` or ``tol`` share its values; two N x N matrices are held at a time.

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

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        cv: Any = None,
        scoring: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
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
        _last_step(self.estimator)
        candidates = list(ParameterGrid(self.param_grid))
        groups = _groups(self.estimator, candidates)
        X, y = np.asarray(X), np.asarray(y)
        given = None if sample_domain is None else np.asarray(sample_domain)
        splits = list(self._splits(X, y, given))
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        tasks = [(split, group) for split in range(len(splits)) for group in range(len(groups))]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_score_group)(
                self.estimator, [candidates[i] for i in groups[g]], X, y, given, splits[s], scorer
            )
            for s, g in tasks
        )
        scores = np.empty((len(candidates), len(splits)))
        for (s, g), values in zip(tasks, found, strict=True):
            scores[groups[g], s] = values
        self._record(candidates, scores)
        best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        with config_context(enable_metadata_routing=True):
            self.best_estimator_ = best.fit(X, y, sample_domain=given)
        return self

    def _splits(self, X: Array, y: Array, given: Array | None) -> Iterator[tuple[Array, Array]]:
        codes = None if given is None else check_sample_domain(given, len(X)).codes
        if self.cv is None and (codes is None or len(np.unique(codes)) < 2):
            warnings.warn(
                "without at least two domains in sample_domain candidates are compared on "
                "random folds, which says nothing about unseen domains",
                UserWarning,
                stacklevel=3,
            )
            folds = StratifiedKFold if is_classifier(self.estimator) else KFold
            return iter(folds(5, shuffle=True, random_state=0).split(X, y))
        cv = LeaveDomainsOut() if self.cv is None else self.cv
        cv = check_cv(cv, y, classifier=is_classifier(self.estimator))
        return iter(cv.split(X, y, codes))

    def _record(self, candidates: list[dict[str, Any]], scores: Array) -> None:
        mean = scores.mean(axis=1)
        rank = rankdata(-np.nan_to_num(mean, nan=-np.inf), method="min").astype(np.int32)
        self.n_splits_ = scores.shape[1]
        self.cv_results_: dict[str, Any] = {"params": candidates}
        for s in range(self.n_splits_):
            self.cv_results_[f"split{s}_test_score"] = scores[:, s]
        self.cv_results_ |= {
            "mean_test_score": mean,
            "std_test_score": scores.std(axis=1),
            "rank_test_score": rank,
        }
        self.best_index_ = int(rank.argmin())
        self.best_score_ = float(mean[self.best_index_])
        self.best_params_ = candidates[self.best_index_]

    @property
    def classes_(self) -> Array:
        """Class labels."""
        return np.asarray(self.best_estimator_.classes_)

    def predict(self, X: Any) -> Array:
        """Predict with the best estimator."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: Any) -> Array:
        """Return the best estimator's decision values."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.decision_function(X))

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """Return the best estimator's probabilities."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict_proba(X))

    def score(self, X: Any, y: Any) -> float:
        """Score the best estimator by ``scoring``."""
        check_is_fitted(self)
        scorer = check_scoring(self.best_estimator_, scoring=self.scoring)
        return float(scorer(self.best_estimator_, X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags.pairwise = inner.input_tags.pairwise
        return tags


def _last_step(estimator: Any) -> tuple[str, Any]:
    """Prefix of the machine's arguments in the estimator, and the machine."""
    prefix, machine = "", estimator
    if isinstance(estimator, Pipeline):
        prefix, machine = f"{estimator.steps[-1][0]}__", estimator.steps[-1][1]
    if not isinstance(machine, InvariantMachine):
        raise ValueError(
            "InvariantSearchCV searches InvariantSVC and InvariantSVR, alone or at the end of a "
            f"pipeline; got {type(machine).__name__}"
        )
    return prefix, machine


def _groups(estimator: Any, candidates: list[dict[str, Any]]) -> list[list[int]]:
    """Candidates that share kernel values: those that agree in all but the path's arguments."""
    prefix, _ = _last_step(estimator)
    along = {prefix + name for name in PATH_ARGUMENTS}
    groups: list[tuple[dict[str, Any], list[int]]] = []
    for i, candidate in enumerate(candidates):
        rest = {name: value for name, value in candidate.items() if name not in along}
        for other, members in groups:
            if other.keys() == rest.keys() and all(other[k] is rest[k] for k in rest):
                members.append(i)
                break
        else:
            groups.append((rest, [i]))
    return [members for _, members in groups]


def _score_group(
    estimator: Any,
    candidates: list[dict[str, Any]],
    X: Array,
    y: Array,
    sample_domain: Array | None,
    split: tuple[Array, Array],
    scorer: Any,
) -> list[float]:
    """Score candidates that share kernel values on one split."""
    train, held = split
    first = clone(estimator).set_params(**clone(candidates[0], safe=False))
    prefix, machine = _last_step(first)
    domain = None if sample_domain is None else sample_domain[train]
    X_train, X_held = _prepared(first, machine, X, y, domain, train, held)
    if not machine._is_exact(len(train)):
        path = None
    else:
        path = KernelPath.evaluate(machine, X_train, X_held)
    scores = np.empty(len(candidates))
    settings = [_settings(machine, candidate, prefix) for candidate in candidates]
    # Without a weight there is nothing to be conditional on: the same kernel.
    kinds = [(m.domain_weight, bool(m.conditional and m.domain_weight)) for m in settings]
    for weight, conditional in dict.fromkeys(kinds):
        members = [i for i, kind in enumerate(kinds) if kind == (weight, conditional)]
        if path is None:
            for i in members:
                fitted = settings[i].fit(X_train, y[train], sample_domain=domain)
                scores[i] = scorer(fitted, X_held, y[held])
            continue
        if weight:
            path.add_domains(settings[members[0]], y[train], domain)
        K, cross = path.kernels(weight, conditional)
        known: list[tuple[dict[str, Any], float]] = []
        # These matrices are finite, and looking at them again would take as long as many a fit.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for i in members:
                arguments = {name: getattr(settings[i], name, None) for name in SVM_ARGUMENTS}
                same = [score for other, score in known if other == arguments]
                if same:
                    scores[i] = same[0]
                    continue
                fitted = settings[i]._exact_machine().fit(K, y[train])
                scores[i] = scorer(fitted, cross, y[held])
                known.append((arguments, scores[i]))
    return scores.tolist()


def _settings(machine: Any, candidate: dict[str, Any], prefix: str) -> Any:
    """The machine with a candidate's arguments along the path."""
    changed = copy(machine)
    for name in PATH_ARGUMENTS:
        if prefix + name in candidate:
            setattr(changed, name, candidate[prefix + name])
    changed._validate_params()
    return changed


def _prepared(
    estimator: Any,
    machine: Any,
    X: Array,
    y: Array,
    domain: Array | None,
    train: Array,
    held: Array,
) -> tuple[Array, Array]:
    """Training and held-out rows as the machine sees them, after the pipeline's other steps."""
    if not isinstance(estimator, Pipeline):
        if machine.kernel == "precomputed":
            return _rows(X[np.ix_(train, train)]), _rows(X[np.ix_(held, train)])
        return _rows(X[train]), _rows(X[held])
    rows, new = X[train], X[held]
    with config_context(enable_metadata_routing=True):
        for _, step in estimator.steps[:-1]:
            if step is None or step == "passthrough":
                continue
            asks = step.get_metadata_routing().consumes("fit", ["sample_domain"])
            options = {"sample_domain": domain} if asks else {}
            rows = step.fit(rows, y[train], **options).transform(rows)
            new = step.transform(new)
    return _rows(rows), _rows(new)


def _rows(X: Any) -> Array:
    X = np.asarray(X)
    X = X if X.dtype == np.float32 else X.astype(np.float64, copy=False)
    if not np.isfinite(X).all():
        raise ValueError("Input X contains NaN or infinity.")
    return X
