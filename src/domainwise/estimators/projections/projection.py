"""Base classes of exact and Nystrom estimators, and linear combinations of kernel values."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.backends import Backend, backend_of
from domainwise.algebra.backends.base import Movable, from_portable, to_device, to_portable
from domainwise.algebra.gram import Gram
from domainwise.algebra.gram.nystrom import NystromMap
from domainwise.algebra.kernels import approximations
from domainwise.algebra.kernels.approximations import Basis, FourierMap
from domainwise.algebra.kernels.functions import Kernel, check_precomputed
from domainwise.algebra.labels import LabelSpace, max_residual_trace
from domainwise.algebra.methods.components import Components
from domainwise.base.arrays import (
    Array,
    ArrayLike,
    MaybeArray,
    is_dask,
    is_tensor,
    to_device_of,
    to_host,
)
from domainwise.base.inputs import Labels, check_conditional, count_rows, warn_about_domains
from domainwise.base.process import single_blas_thread

#: Up to this many rows in memory, BLAS uses one thread.
SMALL_ROWS = 1500


def one_thread_if_small(X: Any) -> AbstractContextManager[None]:
    """Limit BLAS to one thread if X has few rows; more threads would be slower."""
    is_small = False
    if not (is_dask(X) or is_tensor(X)):  # counting the rows of a Dask collection is slow
        with suppress(TypeError):
            is_small = count_rows(X) <= SMALL_ROWS
    return single_blas_thread(is_small)


_ARRAYS = ("landmarks", "dual", "intercept")  #: fields of Expansion that move to a device


@dataclass(frozen=True)
class Expansion:
    """A function ``x -> sum_j (k(x, landmark_j) - kernel.constant) dual_j + intercept``."""

    kernel: Basis
    landmarks: Any  #: rows; None for a precomputed kernel
    dual: Any  #: coefficients of shape (n_landmarks, c) for c outputs
    intercept: Any

    @classmethod
    def from_features(cls, features: NystromMap, coefficients: Any, intercept: Any) -> Expansion:
        """Convert a linear function of features to an expansion on the coefficients' device."""
        dual = features.dual(to_host(coefficients))
        constant = features.kernel.constant * dual.sum(axis=0)
        arrays = (features.landmarks, dual, constant)
        landmarks, dual, constant = (to_device_of(array, coefficients) for array in arrays)
        return cls(features.kernel, landmarks, dual, intercept + constant)

    def __call__(self, X: Any) -> Any:
        """Evaluate the function on rows; the result has shape (n, c)."""
        backend = backend_of(X)
        if not hasattr(X, "cpu"):
            X = X.astype(self.landmarks.dtype, copy=False)
        return backend.cross_product(self.kernel, X, self.landmarks, self.dual) + self.intercept

    def to(self, device: Any) -> Expansion:
        """Return a copy on a torch device, or with NumPy arrays for ``"numpy"``."""
        return replace(self, **{name: to_device(getattr(self, name), device) for name in _ARRAYS})

    def __getstate__(self) -> dict[str, Any]:
        return to_portable(vars(self), _ARRAYS)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(from_portable(state))


class Projection(Movable, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """A kernel projection ``x -> k(x, rows)' dual_coef_ - offset``.

    A subclass defines its arguments and how it is fitted.
    """

    # sample_domain reaches fit through pipelines and searches without set_fit_request.
    __metadata_request__fit = {"sample_domain": True}

    kernel: Any
    gamma: float | str
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    random_state: Any
    classes_: Array
    domains_: Array | None
    embedding_: Array  # exact estimators only
    _kernel: Basis
    _offset: Any  #: subtracted from sums of kernel values

    #: Defaults of arguments that some methods do not have.
    n_components: int | None = None
    target_kernel: Any = "auto"
    target_gamma: float | str = "median"
    domain_kernel: Any = "auto"
    domain_gamma: float | str = "median"
    domain_weight: float = 1.0
    conditional: bool = False
    epsilon: float = 0.0

    #: Whether the method uses or requires targets, domains and classes.
    _uses_target = True
    _uses_domain = True
    _needs_target = False
    _needs_classes = False

    def _label_kernel(self, role: str) -> tuple[Any, float | str, float]:
        """Return the kernel of continuous labels, its gamma, and the allowed error per row."""
        kernel, gamma, weight = self.target_kernel, self.target_gamma, 1.0
        if role == "domain":
            kernel, gamma, weight = self.domain_kernel, self.domain_gamma, float(self.domain_weight)
        max_residual = max_residual_trace(float(self.epsilon), weight)
        return "rbf" if kernel == "auto" else kernel, gamma, max_residual

    def fit(
        self,
        X: ArrayLike,
        y: MaybeArray = None,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Learn the projection from source domains.

        {source_rows}
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Classes or continuous targets.
        {row_domains} {row_weights}

        {returns_self}
        """
        self._validate_params()
        backend = backend_of(X)
        with one_thread_if_small(X):
            try:
                self._fit(backend, X, y, sample_domain, sample_weight)
            except np.linalg.LinAlgError as error:
                raise ValueError(
                    f"{type(self).__name__} could not solve its eigenvalue problem ({error}). "
                    "Standardize the columns of X."
                ) from error
            backend.finish_fit(self, X)
        return self

    def fit_transform(
        self,
        X: ArrayLike,
        y: MaybeArray = None,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Array:
        """Fit, and return the projected training rows.

        Exact estimators compute them in ``fit``; Fast estimators make a second pass over the rows.

        {as_in_fit}
        Z : ndarray of shape (n_samples, n_components)
        """
        self.fit(X, y, sample_domain, sample_weight)
        # The embedding contains only rows with positive weights.
        has_all_rows = hasattr(self, "embedding_") and len(self.embedding_) == count_rows(X)
        return self.embedding_ if has_all_rows else self.transform(X)

    def transform(self, X: ArrayLike) -> Array:
        """Project rows, which may belong to unseen domains.

        {new_kernel_rows}

        Returns
        -------
        Z : ndarray of shape (n_rows, n_components)
            The projected rows, in the precision of X.
        """
        check_is_fitted(self)
        backend = backend_of(X)
        with one_thread_if_small(X):
            rows = backend.check_rows(self, X, reset=False)
            backend.check_same_device(self.dual_coef_, rows)
            return backend.transform(self, rows)

    @property
    def expansion(self) -> Expansion:
        """The projection as a linear combination of kernel values."""
        names = ("X_fit_", "landmarks_", "frequencies_")  # at most one of them is set
        landmarks = next((getattr(self, name) for name in names if name in vars(self)), None)
        return Expansion(self._kernel, landmarks, self.dual_coef_, -self._offset)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "dual_coef_")

    def __getstate__(self) -> dict[str, Any]:
        return to_portable(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(from_portable(state))

    @abstractmethod
    def _fit(self, backend: Backend, X: Any, y: Any, sample_domain: Any, weights: Any) -> None:
        """Check X and labels, and store the fitted attributes."""

    def _check_labels(
        self, backend: Backend, y: Any, sample_domain: Any, rows: Any, *, min_classes: int = 2
    ) -> tuple[Labels | None, Labels]:
        if y is None and self._needs_target:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Pass "
                "classes or continuous targets as y."
            )
        target = None
        if y is not None and self._uses_target:
            target = backend.check_target(y, rows, self.target_kernel, min_classes=min_classes)
            if self._needs_classes and target.codes is None:
                raise ValueError(
                    f"{type(self).__name__} compares class means, but y is continuous. Pass class "
                    "labels as y."
                )
        domain = backend.check_sample_domain(sample_domain, rows, self.domain_kernel)
        if self.conditional:
            check_conditional(target)
        return target, domain

    def _warn_about_domains(self, sample_domain: Any, domain: Labels, n_rows: int) -> None:
        if self._uses_domain and self.domain_weight:
            warn_about_domains(self, sample_domain, domain, n_rows)

    def _record(self, kernel: Basis, classes: Any, domains: Any) -> None:
        """Store the kernel, and the names of classes and domains."""
        self._kernel, self.gamma_, self.domains_ = kernel, kernel.gamma, domains
        self.__dict__.pop("classes_", None)  # from an earlier fit
        if classes is not None:
            self.classes_ = classes

    def _record_solution(self, gram: Gram, solution: Components) -> None:
        """Store the eigenvalues and information about the solver."""
        self.eigenvalues_ = solution.eigenvalues
        self.n_informative_ = solution.n_informative
        self.solver_info_ = {"operator": type(gram).__name__, **gram.info, **solution.info}

    @property
    def _n_features_out(self) -> int:
        return int(self.dual_coef_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.target_tags.required = self._needs_target
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class MethodProjection(Projection):
    """A projection computed by a method with a Gram operator."""

    @property
    @abstractmethod
    def _method(self) -> Callable[..., Components]:
        """Function that solves the eigenproblem; its arguments are named like the estimator's."""

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        """Call the method with the estimator's arguments that it accepts."""
        names = inspect.signature(self._method).parameters.keys() - {"gram", "labels"}
        options = {key: continuous if key == "continuous" else getattr(self, key) for key in names}
        return self._method(gram, labels, **options)


def resolved_kernel(
    estimator: Any, backend: Backend, rows: Any, weights: Array | None = None
) -> Kernel:
    """Check the kernel of an estimator, and compute its parameters from the rows."""
    is_sound = estimator.kernel != "precomputed" or check_precomputed(rows)
    names = ("gamma", "degree", "coef0", "kernel_params")
    arguments = {name: getattr(estimator, name) for name in names}
    kernel = backend.resolve_kernel(estimator.kernel, rows, weights=weights, **arguments)
    return kernel if is_sound else replace(kernel, sound=False)


def fixed_seed(random_state: Any) -> int:
    """Return an integer seed; it is 0 for None, so that refitting gives the same numbers."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def resolve_landmarks(
    estimator: Any, backend: Backend, rows: Any, domain: Labels, kernel: Kernel, n_rows: int
) -> Array:
    """Return the landmarks that were passed, or choose them from ``rows``, a sample of all rows."""
    if not isinstance(estimator.landmarks, str):
        return approximations.check_landmarks(to_host(estimator.landmarks), rows)
    m = estimator._landmark_count(n_rows)
    if m > len(rows):
        raise ValueError(
            f"n_landmarks={estimator.n_landmarks} requests {m} landmarks for {n_rows} rows, but "
            f"landmarks are chosen from a sample of {len(rows)} rows. Pass a smaller n_landmarks, "
            "or an array of landmarks."
        )
    use_strata = estimator.landmarks == "stratified" and domain.codes is not None
    domain_codes = to_host(domain.codes) if use_strata else None
    rng = np.random.default_rng(fixed_seed(estimator.random_state))
    indices = approximations.choose_landmarks(
        estimator.landmarks, rows, m, domain_codes, kernel, rng
    )
    return to_host(rows[indices])


def fourier_map(estimator: Any, kernel: Any, gamma: float, width: int, m: int) -> NystromMap:
    """Return the map from rows with ``width`` columns to ``m`` Fourier features."""
    if not isinstance(estimator.landmarks, str):
        raise ValueError(
            'landmarks were passed, but feature_map="fourier" does not use landmarks. Omit them, '
            'or use feature_map="nystroem".'
        )
    seed = fixed_seed(estimator.random_state)
    return NystromMap.fourier(FourierMap(kernel, gamma, width, m, seed))
