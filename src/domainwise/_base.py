"""What all projection estimators share: checking, storing, projecting."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from domainwise._validation import (
    Labels,
    check_n_components,
    check_precomputed,
    check_sample_domain,
    check_target,
)
from domainwise.gram import DenseGram, Gram, StreamedGram
from domainwise.gram.dense import check_dense_memory
from domainwise.gram.tiles import cross_product, kernel_matrix
from domainwise.kernels import Kernel, make_kernel
from domainwise.labels import CHOLESKY_TOLERANCE, Feature, RowLabels, continuous_feature, label_rows
from domainwise.methods import Components, standardise

Array = NDArray[Any]

#: Up to here the Gram matrix is kept: it takes less than 80 MB and the fit a fraction of a second.
DENSE_ROWS = 3000


class KernelProjection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the exact estimators.

    A subclass defines its arguments and ``_solve``, which calls its method on a Gram operator.
    """

    # sample_domain reaches fit through pipelines and searches without set_fit_request.
    __metadata_request__fit = {"sample_domain": True}

    n_components: int | None
    kernel: Any
    solver: str
    tol: float
    max_iter: int
    random_state: Any
    verbose: int
    classes_: Array

    #: Whether the method has a use for targets and for domains.
    _uses_target = True
    _uses_domain = True
    _needs_target = False

    def fit(self, X: Any, y: Any = None, sample_domain: Any = None) -> Self:
        """Learn the projection from source domains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all source domains; for ``kernel="precomputed"`` their kernel matrix.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Classes or continuous targets.
        sample_domain : array-like of shape (n_samples,) or (n_samples, q), default=None
            The domain of each row: labels, or continuous descriptors. None means one domain.

        Returns
        -------
        self : object
        """
        self._fit(X, y, sample_domain)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_domain: Any = None) -> Array:
        """Fit, and return the projected training rows, which are at hand already.

        Parameters
        ----------
        X, y, sample_domain
            As in :meth:`fit`.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
        """
        self._fit(X, y, sample_domain)
        return self.embedding_

    def transform(self, X: Any) -> Array:
        """Project rows, those of unseen domains included.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            For ``kernel="precomputed"``, kernel values between new rows and training rows.

        Returns
        -------
        Z : ndarray of shape (n_rows, n_components)
            In the precision of X.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        if self._kernel.name == "precomputed":
            Z = X @ self.dual_coef_
        else:
            rows = self._kernel.prepare(self.X_fit_)
            dtype = np.promote_types(X.dtype, self.X_fit_.dtype)
            new = self._kernel.prepare(X.astype(dtype, copy=False))
            Z = cross_product(self._kernel, new, rows, self.dual_coef_)
        return np.asarray(Z - self._offset, dtype=X.dtype)

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        self._validate_params()
        X = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        n = len(X)
        check_n_components(self.n_components, n)
        if y is None and self._needs_target:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        target = None
        if y is not None and self._uses_target:
            target = check_target(y, n, getattr(self, "target_kernel", "auto"))
        domain = check_sample_domain(sample_domain, n, getattr(self, "domain_kernel", "auto"))
        labels = self._label_rows(n, target, domain if self._uses_domain else None)
        kernel = self._resolve_kernel(X)
        gram = self._gram(X, kernel, labels)
        found = standardise(gram, self._solve(gram, labels, target), labels.space)
        self._store(X, kernel, gram, found, target, domain)

    def _solve(self, gram: Gram, labels: RowLabels, target: Labels | None) -> Components:
        raise AssertionError("a subclass calls its method here")

    def _resolve_kernel(self, X: Array) -> Kernel:
        p: Any = self
        if self.kernel == "precomputed":
            check_precomputed(X)
        return make_kernel(
            p.kernel,
            X,
            gamma=p.gamma,
            degree=p.degree,
            coef0=p.coef0,
            kernel_params=p.kernel_params,
        )

    def _label_rows(self, n: int, target: Labels | None, domain: Labels | None) -> RowLabels:
        epsilon = getattr(self, "epsilon", 0.0)
        conditional = getattr(self, "conditional", False)
        if conditional and (target is None or target.codes is None):
            given = "y is missing" if target is None else "y is continuous"
            raise ValueError(f"conditional=True measures domains inside classes, but {given}")
        if domain is not None and domain.n_categories == 1:
            domain = None
        return label_rows(
            n,
            self._feature(target, "target", epsilon, n),
            self._feature(domain, "domain", epsilon, n),
            conditional=conditional,
            values=None if target is None else target.values,
        )

    def _feature(self, labels: Labels | None, role: str, epsilon: float, n: int) -> Feature | None:
        if labels is None:
            return None
        if labels.codes is not None:
            return Feature.of_categories(labels.codes, labels.n_categories)
        assert labels.values is not None
        kernel = getattr(self, f"{role}_kernel", "auto")
        return continuous_feature(
            labels.values,
            "rbf" if kernel == "auto" else kernel,
            getattr(self, f"{role}_gamma", "median"),
            CHOLESKY_TOLERANCE * n * epsilon,
            name=f"the {role} kernel",
        )

    def _gram(self, X: Array, kernel: Kernel, labels: RowLabels) -> Gram:
        options = {
            "tol": self.tol,
            "max_iter": self.max_iter,
            "verbose": self.verbose,
            "seed": fixed_seed(self.random_state),
        }
        no_ridge = getattr(self, "ridge", 1.0) == 0
        lapack = self.solver == "dense" or no_ridge
        if self.solver == "exact" and no_ridge:
            raise ValueError('ridge=0 needs the whole Gram matrix: use solver="dense" or "auto"')
        if kernel.name == "precomputed":
            return DenseGram(X.astype(np.float64), labels, X.dtype, lapack=lapack, **options)
        if lapack:
            check_dense_memory(len(X), "ridge=0" if no_ridge else 'solver="dense"')
        if lapack or len(X) <= DENSE_ROWS:
            matrix = kernel_matrix(kernel, kernel.prepare(X))
            return DenseGram(matrix, labels, X.dtype, lapack=lapack, **options)
        return StreamedGram(X, kernel, labels, **options)

    def _store(
        self,
        X: Array,
        kernel: Kernel,
        gram: Any,
        found: Components,
        target: Labels | None,
        domain: Labels,
    ) -> None:
        dual = found.dual - found.dual.mean(axis=0)
        self._kernel = kernel
        self._offset = gram.offset(dual)
        self.dual_coef_ = dual
        if kernel.name != "precomputed":
            self.X_fit_ = np.array(X)
        self.embedding_ = np.asarray(found.values, dtype=X.dtype)
        self.eigenvalues_ = found.eigenvalues
        self.n_informative_ = found.n_informative
        self.gamma_ = kernel.gamma
        self.domains_ = domain.names
        self.solver_info_ = {"operator": type(gram).__name__, **found.info}
        if hasattr(self, "classes_"):
            del self.classes_
        if target is not None and target.names is not None:
            self.classes_ = target.names

    @property
    def _n_features_out(self) -> int:
        return int(self.dual_coef_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.target_tags.required = self._needs_target
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def fixed_seed(random_state: Any) -> int:
    """Seed of a random_state; None stands for a fixed one, so that refitting repeats the bits."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)
