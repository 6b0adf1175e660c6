"""InvariantSearchCV: a grid search that evaluates the kernel once per split."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, check_scoring, r2_score
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from domainwise.algebra.backends import Backend
from domainwise.algebra.kernels.functions import Kernel
from domainwise.algebra.labels import LARGEST_WEIGHT, unlabelled_rows
from domainwise.base import inputs
from domainwise.base.arguments import validate_arguments
from domainwise.base.arrays import (
    Array,
    ArrayLike,
    CrossValidator,
    Decision,
    Estimator,
    MaybeArray,
    Scoring,
    content_keys,
)
from domainwise.base.inputs import check_sample_domain
from domainwise.base.messages import NotAKernelWarning
from domainwise.base.process import filtered_warnings
from domainwise.base.signatures import documented_arguments
from domainwise.estimators.invariant.kernel import (
    centred_cross,
    check_invariance_labels,
    corrected_gram,
    correction,
    domain_factor,
    symmetrized,
)
from domainwise.estimators.invariant.machines import InvariantMachine
from domainwise.estimators.projections.exact import make_gram
from domainwise.estimators.projections.projection import one_thread_if_small, resolved_kernel
from domainwise.held_out.calibration.curves import Curve, class_columns, fit_domain_curve
from domainwise.held_out.calibration.decisions import Decisions
from domainwise.held_out.folds import Split, domain_folds, without_rows
from domainwise.held_out.scoring.measures import check_task, counts_by_domain
from domainwise.held_out.scoring.predictions import HeldOut, MetaEstimator, fit_with_domains
from domainwise.held_out.search import driver
from domainwise.held_out.search.driver import Candidate, Data, Outcomes, SearchAttributes
from domainwise.held_out.search.scores import Outcome, Score, SmoothScore, as_score

#: Arguments of InvariantSVC and InvariantSVR that do not change the kernel.
SVM_ARGUMENTS = ("C", "epsilon", "class_weight", "tol")
#: Arguments in which the candidates of a batch, which share kernel values, may differ.
BATCH_ARGUMENTS = (*SVM_ARGUMENTS, "domain_weight", "conditional")


@dataclass
class SplitKernels:
    """Kernel values for one split, from which invariant kernels with any weight are computed."""

    gram: Array  #: centred kernel matrix of the training rows
    cross: Array  #: kernel values between new and training rows, centred with training means
    tolerance: float  #: see :func:`~domainwise.estimators.invariant.kernel.correction`
    #: By ``conditional``: ``F'KF``, ``KF`` and ``cross F``; F is the domain factor, and K is gram.
    _products_by_conditional: dict[bool, tuple[Array, Array, Array]] = field(default_factory=dict)
    _last_kernels: Any = None  #: the last (weight, conditional) pair and its two matrices

    @classmethod
    def evaluate(
        cls, machine: Any, X: Array, X_new: Array, kernel: Kernel | None = None
    ) -> SplitKernels:
        """Evaluate a machine's kernel among training rows, and between new and training rows."""
        kernel = kernel or resolved_kernel(machine, Backend(), X)
        gram, _, _ = make_gram(X, kernel, unlabelled_rows(len(X)), dense=True)
        cross = centred_cross(kernel, X_new, X, gram.row_means)
        return cls(symmetrized(gram.K), cross, gram.tolerance)

    def fit_svm(
        self, machine: InvariantMachine, y: Any, sample_domain: Any, weights: Array | None = None
    ) -> tuple[Any, Array]:
        """Fit an SVM with the machine's arguments; return it and the new rows' kernel values."""
        gram, cross = self.gram, self.cross
        if machine.domain_weight:
            gram, cross = self._invariant_kernels(machine, y, sample_domain, weights)
        # The matrices are finite, and checking this again could take as long as a fit.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            return machine._unfitted_svm(is_exact=True).fit(gram, y, sample_weight=weights), cross

    def _invariant_kernels(
        self, machine: Any, y: Any, sample_domain: Any, weights: Array | None
    ) -> tuple[Array, Array]:
        """Return invariant kernel values among training rows, and between new and training rows.

        The last values are reused for machines with the same weight and ``conditional``.
        """
        weight, conditional = machine.domain_weight, machine.conditional
        if conditional not in self._products_by_conditional:
            labels = check_invariance_labels(machine, y, sample_domain, len(self.gram))
            # All candidates share the factor, which is accurate enough for the largest weight.
            F = domain_factor(machine, len(self.gram), *labels, LARGEST_WEIGHT, weights)
            KF = self.gram @ F
            self._products_by_conditional[conditional] = (F.T @ KF, KF, self.cross @ F)
        if self._last_kernels is None or self._last_kernels[0] != (weight, conditional):
            self._last_kernels = None  # free memory before the next kernels are computed
            FKF, KF, cross_F = self._products_by_conditional[conditional]
            A, _ = correction(FKF, weight, self.tolerance)
            images = KF @ A
            kernels = corrected_gram(self.gram, images), self.cross - (cross_F @ A) @ images.T
            self._last_kernels = (weight, conditional), kernels
        return self._last_kernels[1]


def find_machine(estimator: Any) -> tuple[str, Any]:
    """Return the prefix of the SVM's parameters (empty without a pipeline), and the SVM itself."""
    prefix, machine = "", estimator
    if isinstance(estimator, Pipeline):
        prefix, machine = f"{estimator.steps[-1][0]}__", estimator.steps[-1][1]
    if not isinstance(machine, InvariantMachine):
        raise ValueError(
            "estimator must be an InvariantSVC, an InvariantSVR, or a Pipeline that ends with one "
            f"of them; got {type(machine).__name__}. Use GridSearchCV for other estimators."
        )
    return prefix, machine


@dataclass(frozen=True)
class InvariantSearchKind:
    """A search for arguments of an invariant SVM; candidates in a batch share kernel values."""

    estimator: Any
    grid: Any
    one_pass = False

    def candidates(self, data: Data) -> list[Candidate]:
        """Return all combinations of values in the grid."""
        return list(ParameterGrid(self.grid))

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Group candidates that differ only in ``BATCH_ARGUMENTS``."""
        prefix, _ = find_machine(self.estimator)
        all_names = dict.fromkeys(name for candidate in candidates for name in candidate)
        shared_names = [n for n in all_names if n.removeprefix(prefix) not in BATCH_ARGUMENTS]
        return driver.batches_by(candidates, shared_names)

    def fit(self, data: Data, chosen: Sequence[Candidate]) -> list[Any]:
        """Fit the estimator with each candidate's arguments."""
        models = [self._unfitted_model(candidate) for candidate in chosen]
        with inputs.quiet_about_domains():
            arguments = data.X, data.y, data.sample_domain, data.weights
            return [fit_with_domains(model, *arguments) for model in models]

    def _unfitted_model(self, candidate: Candidate) -> Any:
        return clone(self.estimator).set_params(**clone(candidate, safe=False))

    def outcomes(
        self, data: Data, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Score the candidates of a batch on one split, with shared kernel values if possible."""
        ((train, test),) = splits
        estimator = self._unfitted_model(batch[0])
        prefix, machine = find_machine(estimator)
        train_data, test_data = _prepared_data(estimator, machine, data, (train, test))
        if machine.kernel != "precomputed":  # sorted as in a fit of the machine
            train_data = train_data.take(np.argsort(content_keys(train_data.X), kind="stable"))
        X_train, X_test = train_data.X, test_data.X
        labels = train_data.y, train_data.sample_domain, train_data.weights
        test_labels = test_data.y, test_data.weights
        machines = []
        for candidate in batch:
            machines.append(copy(machine))
            for name in BATCH_ARGUMENTS:
                if prefix + name in candidate:
                    setattr(machines[-1], name, candidate[prefix + name])
            validate_arguments(machines[-1])
        with filtered_warnings():
            warnings.simplefilter("ignore", UserWarning)
            kernel = resolved_kernel(machine, Backend(), X_train, train_data.weights)
        # Values cannot be shared if each fit chooses landmarks or modifies an indefinite kernel.
        if not (machine._is_exact(len(train)) and kernel.sound):
            with inputs.quiet_about_domains(), filtered_warnings():
                warnings.simplefilter("ignore", NotAKernelWarning)  # the final fit warns
                models = [m.fit(X_train, *labels) for m in machines]
            return [[score.outcome(m, X_test, *test_labels)] for m in models]
        split_kernels = SplitKernels.evaluate(machine, X_train, X_test, kernel)
        machine_keys = [
            (
                m.domain_weight,
                bool(m.conditional and m.domain_weight),  # has no effect if the weight is 0
                repr([getattr(m, name, None) for name in SVM_ARGUMENTS]),
            )
            for m in machines
        ]
        outcomes_by_key: dict[Any, Outcome] = {}
        for i in sorted(range(len(batch)), key=lambda i: machine_keys[i][:2]):
            if machine_keys[i] not in outcomes_by_key:
                svm, K_test = split_kernels.fit_svm(machines[i], *labels)
                with config_context(assume_finite=True, skip_parameter_validation=True):
                    outcome = score.outcome(svm, K_test, *test_labels)
                outcomes_by_key[machine_keys[i]] = outcome
        return [[outcomes_by_key[key]] for key in machine_keys]


def _prepared_data(estimator: Any, machine: Any, data: Data, split: Split) -> tuple[Data, Data]:
    """Return training and test data; their rows have passed the other steps of the pipeline."""
    parts = [data.take(rows) for rows in split]
    if isinstance(estimator, Pipeline) and len(estimator) > 1:
        train = parts[0]
        labels = train.y, train.sample_domain, train.weights
        other_steps = fit_with_domains(estimator[:-1], train.X, *labels)
        parts = [replace(part, X=other_steps.transform(part.X)) for part in parts]
    elif estimator is machine and machine.kernel == "precomputed":
        parts = [replace(part, X=np.asarray(part.X)[:, split[0]]) for part in parts]
    X_pair = [check_array(part.X, dtype=(np.float64, np.float32)) for part in parts]
    train, test = (replace(part, X=X) for part, X in zip(parts, X_pair, strict=True))
    return train, test


_Grid = Mapping[str, Sequence[Any]]


@documented_arguments
class InvariantSearchCV(Decisions, SearchAttributes, MetaEstimator):
    """Grid search for InvariantSVC and InvariantSVR that evaluates the kernel once per split.

    With ``scoring``, scores and the best candidate are the same as in
    :class:`sklearn.model_selection.GridSearchCV`. Candidates that differ only in ``domain_weight``,
    ``conditional``, ``C``, ``epsilon``, ``class_weight`` or ``tol`` share kernel values. For N
    rows, two N x N matrices are stored.

    Scores on a few domains are noisy, and so is the choice of a single candidate. With
    ``n_average`` above 1, the probabilities of several classifiers, or the predictions of several
    regressors, are averaged. The best ``C`` is selected for each kernel and weight, and the best
    ``n_average`` of these candidates are used.

    Parameters
    ----------
    estimator : InvariantSVC, InvariantSVR or Pipeline
        A pipeline must end with one of the two; its other steps are fitted once per split.
    param_grid : dict or list of dict
        As in GridSearchCV.
    cv : int, splitter or iterable, default=None
        None holds out one domain at a time. Domains are passed to splitters as ``groups``.
    scoring : str or callable, default=None
        A scikit-learn scorer. None means R² for a continuous target and, for classes, the log loss
        of probabilities that a logistic curve computes from decision values on held-out domains.
    n_average : int, default=1
        Number of candidates whose predictions are combined.
    n_jobs : int, default=None
        Number of parallel jobs; each evaluates one kernel on one split.
    {decision}

    Attributes
    ----------
    best_params_ : dict
        The candidate with the best mean score; the first one if there are ties.
    best_score_ : float
        Its mean score.
    best_index_ : int
        Its index in ``cv_results_``.
    best_estimator_ : estimator
        The estimator with these arguments, fitted to all rows.
    members_ : list of dict
        Arguments of the candidates whose predictions are combined, best first.
    estimators_ : list of estimator
        The estimators with these arguments, each fitted to all rows.
    {scores}
    curves_ : list of Curve
        For each member of a classifier, the curve that turns decision values into probabilities. It
        is fitted to held-out domains, which have equal weights.
    {decided}
    held_out_ : HeldOut
        Probabilities of a classifier for held-out rows. Model files do not contain this attribute.
    held_out_outputs_ : ndarray of shape (n_members, n_samples, n_columns) or None
        Outputs of the members for rows that they were not fitted to, if the search computes them.
        Model files do not contain this attribute.

    See Also
    --------
    domainwise.InvariantSVC : The classifier.

    Notes
    -----
    Each candidate minimizes the objective of :class:`~domainwise.InvariantSVC` or
    :class:`~domainwise.InvariantSVR`. Among them, the mean score :math:`S` on held-out domains is
    maximized.

    With ``solver="fast"`` or, for many rows, ``"auto"``, candidates do not share kernel values.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    I. Gulrajani and D. Lopez-Paz (2021), "In search of lost domain generalization", ICLR,
    arXiv:2007.01434.

    Examples
    --------
    >>> from domainwise import InvariantSVC
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import InvariantSearchCV
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = InvariantSearchCV(InvariantSVC(), {"domain_weight": [0, 0.1], "C": [1, 10]})
    >>> search = search.fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> print(search.best_params_, f"log loss {-search.best_score_:.2f}")
    {'C': 10, 'domain_weight': 0.1} log loss 0.59
    """

    estimator: Estimator = field(kw_only=False)
    param_grid: _Grid | Sequence[_Grid] = field(kw_only=False)
    cv: CrossValidator = None
    scoring: Scoring = None
    n_average: int = 1
    n_jobs: int | None = None
    decision: Decision = "auto"

    _parameter_constraints: ClassVar[dict[str, Any]] = dict.fromkeys(
        ("estimator", "param_grid"), "no_validation"
    )

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Score every candidate on held-out domains, and fit the best ones to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.
        {row_weights}

        {returns_self}
        """
        self._validate_params()
        prefix, _ = find_machine(self.estimator)
        # Data frames are not converted, because pipeline steps may select columns by name.
        inputs.validate_rows(self, X, numeric=False, skip_check_array=True)
        rows: Any = X
        if not hasattr(X, "iloc"):
            rows = check_array(X, dtype=None, ensure_all_finite="allow-nan")
        labels = y, sample_domain
        weights, rows, y, sample_domain = inputs.rows_with_weight(sample_weight, rows, *labels)
        is_classification, y_array = is_classifier(self.estimator), inputs.plain_array(y)
        target = inputs.check_target(y_array, len(rows), "delta" if is_classification else "rbf")
        if target.names is not None:
            y_array = target.names[target.codes]
        domains = None if sample_domain is None else inputs.plain_array(sample_domain)
        domain_codes = None if domains is None else check_sample_domain(domains, len(rows)).codes
        cv = without_rows(self.cv, sample_weight)
        options: Any = {"classification": is_classification, "cv": cv, "max_splits": None}
        splits, _ = domain_folds(y_array, domain_codes, X=rows, **options)
        check_task(self.scoring, is_classification)
        smooth_score = SmoothScore(y_array, domain_codes, target.names, weights=weights)
        scorer: Any = self.scoring
        if scorer is None and is_classification:
            scorer = smooth_score
        elif not isinstance(scorer, SmoothScore):
            scorer = check_scoring(self.estimator, scoring=scorer)
        score = as_score(scorer)
        kind = InvariantSearchKind(self.estimator, self.param_grid)
        data = Data(rows, y_array, domains, weights=weights)
        # Select the best candidate for each kernel and weight, and the best n_average of these.
        svm_arguments = {prefix + name for name in SVM_ARGUMENTS}
        rule = partial(driver.best_of_paths, path=svm_arguments, n=self.n_average)
        with one_thread_if_small(rows):
            search_result = driver.search(kind, data, splits, score, rule, n_jobs=self.n_jobs)
        self._record_search(search_result, arguments=False)
        self.members_ = search_result.chosen
        self.estimators_: list[Any] = kind.fit(data, self.members_)
        self.best_estimator_: Any = self.estimators_[0]
        self.curves_: list[Curve] = []
        self.held_out_: HeldOut | None = None
        self.decision_rule_ = None
        values = search_result.held_out
        if not is_classification and values is not None and domain_codes is not None:
            mean = values.mean(axis=0)
            rows = np.flatnonzero(np.isfinite(mean).all(axis=1))
            targets = y_array.astype(np.float64)
            outputs = targets, domain_codes, mean
            self.held_out_ = HeldOut.from_rows(*outputs, rows=rows, weights=weights)
        if is_classification:
            if values is None:  # the scorer needs no outputs
                values = driver.held_out_outputs(kind, data, splits, self.members_, smooth_score)
            if domain_codes is None:
                domain_codes = np.zeros(len(y_array), dtype=np.intp)
            self._calibrate(values, target.codes, domain_codes, weights)
        return self

    def _calibrate(
        self, values: Array, class_codes: Array, domain_codes: Array, weights: Array | None
    ) -> None:
        """Fit curves to the members' values for held-out rows, and set the decision rule."""
        is_held_out = np.isfinite(values).all(axis=(0, 2))
        y, domains = class_codes[is_held_out], domain_codes[is_held_out]
        row_weights = None if weights is None else weights[is_held_out]
        values = values[:, is_held_out]
        self.curves_ = [fit_domain_curve(v, y, domains, row_weights) for v in values]
        pairs = zip(self.curves_, values, strict=True)
        probabilities = np.mean([curve.probabilities(v) for curve, v in pairs], axis=0)
        self.held_out_ = HeldOut.from_rows(y, domains, probabilities, weights=row_weights)
        n_classes = len(self.classes_)
        self._class_counts = counts_by_domain(class_codes, domain_codes, n_classes, weights)
        self.decide(self.decision, self.scoring)

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "held_out_"}

    def _check_columns(self, X: Any) -> None:
        """Raise an error if columns differ from those in fit, or are in another order."""
        check_is_fitted(self)
        inputs.validate_rows(self, X, numeric=False, reset=False, skip_check_array=True)

    @property
    def classes_(self) -> Array:
        """Class labels."""
        return np.asarray(self.best_estimator_.classes_)

    def predict(self, X: ArrayLike) -> Array:
        """Predict classes by the decision rule, or numbers by the mean of the members.

        {new_rows}

        Returns
        -------
        y : ndarray of shape (n_rows,)
            Classes, or values of the target.
        """
        self._check_columns(X)
        if self.decision_rule_ is not None:
            return self.classes_[self.decision_rule_.codes(self.predict_proba(X))]
        return np.mean([model.predict(X) for model in self.estimators_], axis=0)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: ArrayLike) -> Array:
        """Return decision values; for several members, votes plus a term that breaks ties.

        This term is the mean decision value, scaled to less than half a vote, so that it orders
        rows with the same votes and never changes a majority.

        {new_rows}

        Returns
        -------
        scores : ndarray of shape (n_rows,) or (n_rows, n_classes)
            With a single member, the values of ``best_estimator_``.
        """
        self._check_columns(X)
        if len(self.estimators_) == 1:
            return np.asarray(self.best_estimator_.decision_function(X))
        mean_decisions = np.mean([model.decision_function(X) for model in self.estimators_], axis=0)
        tie_breaker = mean_decisions / (3.0 * (np.abs(mean_decisions) + 1.0))
        predicted_classes = np.array([model.predict(X) for model in self.estimators_])
        votes = (predicted_classes[:, :, None] == self.classes_).sum(axis=0)
        if mean_decisions.ndim == 1:
            return np.asarray(votes[:, 1] - votes[:, 0] + tie_breaker)
        return np.asarray(votes + tie_breaker)

    @available_if(lambda self: is_classifier(self.estimator))
    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the mean of the members' probabilities, which are calibrated on held-out domains.

        {new_rows}

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            Columns are in the order of ``classes_``.
        """
        self._check_columns(X)
        pairs = zip(self.curves_, self.estimators_, strict=True)
        return np.mean(
            [c.probabilities(class_columns(m.decision_function(X))) for c, m in pairs], axis=0
        )

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Score predictions with ``scoring``, by default accuracy or R2; larger is better.

        Parameters
        ----------
        X, y
            Rows, and their classes or continuous targets.

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        if self.scoring is None:
            metric = accuracy_score if is_classifier(self.estimator) else r2_score
            return float(metric(y, self.predict(X)))
        return float(check_scoring(self, scoring=self.scoring)(self, X, y))
