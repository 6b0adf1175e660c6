"""InvariantSVC and InvariantSVR: support vector machines with the invariant kernel."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.utils import gen_batches
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.gram.tiles import tile_side
from domainwise.base import inputs
from domainwise.base.arguments import SVM_CONSTRAINTS
from domainwise.base.arrays import (
    Array,
    ArrayLike,
    ClassWeight,
    Decision,
    MaybeArray,
    Seed,
    content_keys,
)
from domainwise.base.messages import RowFoldsWarning, warn_caller
from domainwise.base.process import filtered_warnings
from domainwise.base.signatures import InvarianceArguments, arguments, documented_arguments
from domainwise.estimators.conformal import fit_rows
from domainwise.estimators.invariant.kernel import InvariantFeatures, InvariantKernel, check_rows
from domainwise.estimators.projections.projection import one_thread_if_small
from domainwise.held_out.calibration.curves import class_columns, fit_domain_curve
from domainwise.held_out.calibration.decisions import Decisions, choose_rule
from domainwise.held_out.folds import domain_folds, row_folds
from domainwise.held_out.scoring.measures import counts_by_domain
from domainwise.held_out.scoring.predictions import HeldOut, Predictions

#: Up to this many rows, ``solver="auto"`` is exact. The Gram matrix then takes up to 200 MB, and
#: up to three times as much while it is computed.
EXACT_ROWS = 5000
#: Maximum number of iterations of an exact SVM, which might never converge if X is not scaled.
MAX_ITER = 50_000_000
#: Linear SVMs penalize their intercept; this scaling reduces the penalty by a factor of 100.
INTERCEPT_SCALING = 10.0


@arguments
class InvariantMachine(InvarianceArguments, BaseEstimator, ABC):
    """An SVM with the invariant kernel, or a linear SVM on its features."""

    C: float = field(default=1.0, kw_only=False)
    solver: str = "auto"
    tol: float = 1e-3
    random_state: Seed = None

    # sample_domain reaches fit through pipelines and searches without set_fit_request.
    __metadata_request__fit = {"sample_domain": True}

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = SVM_CONSTRAINTS
    _svm_types: ClassVar[tuple[Any, Any]]  #: classes for a precomputed kernel and for features
    _extra_argument: ClassVar[str]  #: name of an argument of both, besides ``C`` and ``tol``

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Fit the SVM to rows from source domains.

        {source_rows}
        y : array-like of shape (n_samples,)
            Classes, or continuous targets for regression.
        {row_domains} {row_weights}

        {returns_self}
        """
        self._validate_params()
        with one_thread_if_small(X):
            self._check_and_fit(X, y, sample_domain, sample_weight)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predict the class, or the continuous target, of each row.

        {new_rows}

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        return self._machine_outputs(X, "predict")

    @abstractmethod
    def _check_and_fit(self, X: Any, y: Any, sample_domain: Any, weights: Any) -> None:
        """Check X and y, and fit the SVM to them."""

    def _fit_machine(self, X: Array, y: Array, sample_domain: Any, weights: Any) -> None:
        if self.kernel != "precomputed":  # the solver's result depends on the order of rows
            order = np.argsort(content_keys(X), kind="stable")
            if sample_domain is not None:
                inputs.check_sample_domain(sample_domain, len(X), self.domain_kernel)
                sample_domain = np.asarray(sample_domain)[order]
            weights = None if weights is None else weights[order]
            X, y = X[order], y[order]
        kernel_args = {name: getattr(self, name) for name in InvariantKernel().get_params()}
        is_exact = self._is_exact(len(X))
        if is_exact:
            self.transformer_ = InvariantKernel(**kernel_args)
        else:
            self.transformer_ = InvariantFeatures(random_state=self.random_state, **kernel_args)
        Z = self.transformer_.fit_transform(X, y, sample_domain, weights)
        self.machine_ = self._unfitted_svm(is_exact).fit(Z, y, sample_weight=weights)
        self.gamma_ = self.transformer_.gamma_
        self.domains_ = self.transformer_.domains_
        self.n_iter_ = int(np.max(self.machine_.n_iter_))
        self.solver_info_ = {"solver": "exact" if is_exact else "fast"}

    def _is_exact(self, n_samples: int) -> bool:
        if self.kernel == "precomputed":
            if self.solver == "fast":
                raise ValueError(
                    'solver="fast" chooses landmarks from rows, which are not available with '
                    'kernel="precomputed". Use solver="exact" or solver="auto".'
                )
            return True
        return self.solver == "exact" or (self.solver == "auto" and n_samples <= EXACT_ROWS)

    def _unfitted_svm(self, is_exact: bool) -> Any:
        """Return an unfitted SVM, for a precomputed kernel or for features."""
        svm_args = {name: getattr(self, name) for name in ("C", "tol", self._extra_argument)}
        if is_exact:
            return self._svm_types[0](kernel="precomputed", max_iter=MAX_ITER, **svm_args)
        return self._svm_types[1](dual=False, intercept_scaling=INTERCEPT_SCALING, **svm_args)

    def _machine_outputs(self, X: Any, method_name: str) -> Array:
        """Call a method of the SVM for batches of rows, to limit memory."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        batch_size = max(1, tile_side(8) ** 2 * 8 // self.transformer_._n_features_out)
        outputs = [
            getattr(self.machine_, method_name)(self.transformer_.transform(X[batch]))
            for batch in gen_batches(len(X), batch_size)
        ]
        return np.concatenate(outputs)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _check_proba(estimator: InvariantSVC) -> bool:
    if not estimator.probability:
        raise AttributeError(
            "predict_proba is not available when probability=False. Use "
            "InvariantSVC(probability=True)."
        )
    return True


@documented_arguments
class InvariantSVC(Decisions, ClassifierMixin, InvariantMachine):
    r"""Support vector classifier with a penalty on differences between domains.

    This is :class:`sklearn.svm.SVC` (one-vs-one for several classes) with the kernel of
    :class:`InvariantKernel`. With ``domain_weight=0`` or a single domain, it is equivalent to SVC.

    Parameters
    ----------
    C : float, default=1.0
        Weight of training errors, as in SVC.
    {kernel} {domain} {invariance}
    {svm_solver}
    class_weight : dict or "balanced", default=None
        As in SVC. Probabilities do not depend on it: they are calibrated on rows without weights.
    probability : bool, default=False
        Whether to enable ``predict_proba``. This needs more fits: source domains are held out, in
        at most ten groups, and a calibration curve turns their decision values into
        probabilities that are calibrated for unseen domains. Without ``sample_domain``, or if a
        class occurs in only one group of domains, rows are held out instead, with a warning.
    decision : {"auto", "argmax", "balanced"} or float, default="auto"
        How classes are predicted from probabilities, as in
        :class:`~domainwise.selection.InvariantRidgeClassifierCV`. Without probabilities, the sign
        of decision values is used.

    Attributes
    ----------
    classes_ : ndarray
        Class labels.
    {machine_fitted}
    curve_ : Curve
        Calibration curve that converts decision values into probabilities; only if
        ``probability=True``.
    {decided}

    See Also
    --------
    InvariantKernel : The same kernel, for other kernel machines.

    Notes
    -----
    Minimizes, for classes coded as -1 and 1,

    .. math:: C \sum_i \max(0, 1 - y_i (f(x_i) + b)) + \tfrac{1}{2} (\|f\|^2 + w f'P_d f),

    where :math:`f'P_d f` is large if the mean of f differs between domains.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    C. Cortes and V. Vapnik (1995), "Support-vector networks", Machine Learning 20,
    doi:10.1007/BF00994018.

    Examples
    --------
    >>> from domainwise import InvariantSVC
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> X, y, domain = data.data, data.target, data.sample_domain
    >>> is_source = domain < 7  # the other three domains are unseen
    >>> model = InvariantSVC(domain_weight=0.1)
    >>> model = model.fit(X[is_source], y[is_source], sample_domain=domain[is_source])
    >>> accuracy = model.score(X[~is_source], y[~is_source])
    >>> print(f"accuracy on unseen domains: {accuracy:.2f}")
    accuracy on unseen domains: 0.75
    """

    class_weight: ClassWeight = None
    probability: bool = False
    decision: Decision = "auto"
    _svm_types, _extra_argument = (SVC, LinearSVC), "class_weight"

    def _check_and_fit(self, X: Any, y: Any, sample_domain: Any, weights: Any) -> None:
        X, y = check_rows(self, X, y, ensure_min_samples=2, multi_output=False)
        rows, kernel = (X, y, sample_domain), self.kernel
        weights, X, y, sample_domain = inputs.rows_with_weight(weights, *rows, kernel=kernel)
        target = inputs.check_classes(y, len(X))
        inputs.check_class_weight(self.class_weight, target.names)
        if self.decision != "auto" and not self.probability:
            raise ValueError(
                f"decision={self.decision!r} needs probabilities, but probability=False. Use "
                "probability=True, or decision='auto'."
            )
        self.classes_, y = target.names, target.names[target.codes]
        self._fit_machine(X, y, sample_domain, weights)
        for name in ("curve_", "decision_rule_"):  # from an earlier fit
            self.__dict__.pop(name, None)
        if self.probability:
            self._calibrate(X, y, sample_domain, weights)

    def _calibrate(self, X: Array, y: Array, sample_domain: Any, weights: Any) -> None:
        """Fit the calibration to decision values on held-out domains, and set the rule."""
        domain_labels = inputs.check_sample_domain(sample_domain, len(X), self.domain_kernel)
        domains = None if sample_domain is None else np.asarray(sample_domain)
        with filtered_warnings():
            warnings.simplefilter("ignore", RowFoldsWarning)
            options: Any = {"classification": True, "X": X}
            options["is_usable"] = lambda y, _: len(np.unique(y)) == len(self.classes_)
            splits, held_out_unit = domain_folds(y, domain_labels.codes, **options)
        y_test = y[np.concatenate([test for _, test in splits])]
        if len(np.unique(y_test)) < len(self.classes_):  # a class is missing from all test folds
            splits, held_out_unit = row_folds(y, True), "rows"
        if held_out_unit == "rows":
            reason = "fewer than two different domain labels were passed"
            if domain_labels.codes is not None and domain_labels.n_categories > 1:
                reason = "a class occurs in only one group of domains"
            warn_caller(
                "Probabilities were calibrated on stratified folds of rows instead of held-out "
                f"domains, because {reason}. They may be overconfident on unseen domains."
            )
        options = {"probability": False, "decision": "auto"}
        unfitted_model, outputs = clone(self).set_params(**options), []
        for train, test in splits:
            columns = train if self.kernel == "precomputed" else slice(None)
            model = fit_rows(unfitted_model, X[:, columns], y, domains, train, weights)
            predictions: Any = Predictions(model, X[test][:, columns], self.classes_)
            outputs.append(predictions.decisions.reshape(len(test), -1))
        test_rows = np.concatenate([test for _, test in splits])
        values, y_test = np.concatenate(outputs), y[test_rows]
        domain_codes = np.zeros(len(y_test), dtype=np.intp)
        if domain_labels.codes is not None:
            domain_codes = domain_labels.codes[test_rows]
        weights = None if weights is None else weights[test_rows]
        labels = np.searchsorted(self.classes_, y_test), domain_codes
        values = class_columns(values)
        self.curve_ = fit_domain_curve(values, *labels, weights)
        self._class_counts = counts_by_domain(*labels, len(self.classes_), weights)
        held_out = HeldOut(*labels, self.curve_.probabilities(values), weights=weights)
        self.decision_rule_ = choose_rule(self.decision, self._class_counts, held_out)

    def predict(self, X: ArrayLike) -> Array:
        """Predict the class of each row, by ``decision`` if there are probabilities.

        {new_rows}

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        if self.decision_rule_ is None:
            return super().predict(X)
        return self.classes_[self.decision_rule_.codes(self.predict_proba(X))]

    def decision_function(self, X: ArrayLike) -> Array:
        """Return decision values: for the second of two classes, or for each of several classes.

        {new_rows}

        Returns
        -------
        values : ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        return self._machine_outputs(X, "decision_function")

    @available_if(_check_proba)
    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of each class, calibrated on held-out domains.

        {new_rows}

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
        """
        check_is_fitted(self)
        return self.curve_.probabilities(class_columns(self.decision_function(X)))


@documented_arguments
class InvariantSVR(RegressorMixin, InvariantMachine):
    r"""Support vector regression with a penalty on differences between domains.

    This is :class:`sklearn.svm.SVR` with the kernel of :class:`InvariantKernel`. With
    ``domain_weight=0`` or a single domain, it is equivalent to SVR.

    Parameters
    ----------
    C : float, default=1.0
        Weight of training errors, as in SVR.
    epsilon : float, default=0.1
        Errors up to this size are ignored, as in SVR.
    {kernel} {domain} {invariance} {svm_solver}

    Attributes
    ----------
    {machine_fitted}

    See Also
    --------
    InvariantKernel : The same kernel, for other kernel machines.

    Notes
    -----
    Minimizes, with :math:`\epsilon` = ``epsilon``,

    .. math:: C \sum_i \max(0, |y_i - f(x_i) - b| - \epsilon) + \tfrac{1}{2} (\|f\|^2 + w f'P_d f).

    ``conditional=True`` raises an error, because a continuous target has no classes.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    A. J. Smola and B. Schoelkopf (2004), "A tutorial on support vector regression", Statistics and
    Computing 14, doi:10.1023/B:STCO.0000035301.49549.88.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise import InvariantSVR
    >>> rng = np.random.default_rng(0)
    >>> domain = np.repeat(np.arange(8), 30)
    >>> X = rng.normal(size=(240, 3)) + rng.normal(size=(8, 3))[domain]
    >>> y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=240)
    >>> is_source = domain < 6  # the other two domains are unseen
    >>> model = InvariantSVR(domain_weight=0.1)
    >>> model = model.fit(X[is_source], y[is_source], sample_domain=domain[is_source])
    >>> rmse = np.sqrt(np.mean((model.predict(X[~is_source]) - y[~is_source]) ** 2))
    >>> print(f"RMSE on unseen domains: {rmse:.2f}")
    RMSE on unseen domains: 0.42
    """

    epsilon: float = field(default=0.1, kw_only=False)
    _svm_types = (SVR, partial(LinearSVR, loss="squared_epsilon_insensitive"))
    _extra_argument = "epsilon"

    def _check_and_fit(self, X: Any, y: Any, sample_domain: Any, weights: Any) -> None:
        if self.conditional:
            raise ValueError(
                "conditional=True compares domains within classes, but the target of InvariantSVR "
                "is continuous. Use conditional=False."
            )
        X, y = check_rows(self, X, y, ensure_min_samples=2, multi_output=False, y_numeric=True)
        rows, kernel = (X, y, sample_domain), self.kernel
        weights, X, y, sample_domain = inputs.rows_with_weight(weights, *rows, kernel=kernel)
        inputs.check_target(y, len(X), "rbf", min_classes=1)  # libsvm needs finite float64 values
        # Linear SVMs penalize their intercept, so the target is centred.
        is_exact = self._is_exact(len(X))
        mean = np.average(np.asarray(y, dtype=np.float64), weights=weights)
        self._target_mean = 0.0 if is_exact else float(mean)
        self._fit_machine(X, y - self._target_mean, sample_domain, weights)

    def _machine_outputs(self, X: Any, method_name: str) -> Array:
        return self.on_target_scale(super()._machine_outputs(X, method_name))

    def on_target_scale(self, outputs: Array) -> Array:
        """Add the mean that was subtracted from the target before the SVM was fitted."""
        return outputs + self._target_mean
