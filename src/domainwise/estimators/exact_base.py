"""Base of the exact estimators, which keep their training rows."""

from __future__ import annotations

from typing import Any

from domainwise.arrays import Array
from domainwise.backends.base import backend_of
from domainwise.checks.inputs import Labels, check_n_components
from domainwise.estimators.projection import Projection, fixed_seed
from domainwise.gram import Gram
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import Feature, RowLabels, continuous_feature, residual_trace
from domainwise.methods.components import Components, standardise

#: Up to here the Gram matrix is kept: it takes less than 80 MB and the fit a fraction of a second.
DENSE_ROWS = 3000


class KernelProjection(Projection):
    """An exact projection: coefficients over all training rows."""

    solver: str
    tol: float
    max_iter: int
    verbose: int

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
        return self.fit(X, y, sample_domain).embedding_

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        X, y, sample_domain = backend_of(X).label_columns(X, y, sample_domain)
        X = backend_of(X).check_rows(self, X, ensure_min_samples=2)
        check_n_components(self.n_components, len(X))
        if self.kernel == "precomputed":
            backend_of(X).check_precomputed(X)
        target, domain = self._check_labels(y, sample_domain, X)
        labels = self._label_rows(X, target, domain if self._uses_domain else None)
        kernel = self._resolve_kernel(X)
        gram = self._gram(X, kernel, labels)
        continuous = target is not None and target.values is not None
        found = self._solve(gram, labels.space, continuous)
        found = standardise(gram, found, labels.space, warn=self.n_components is not None)
        self._store(X, kernel, gram, found)
        names = None if target is None else target.names
        self._record(kernel, gram, found, names, domain.names)

    def _label_rows(self, X: Any, target: Labels | None, domain: Labels | None) -> RowLabels:
        epsilon = getattr(self, "epsilon", 0.0)
        if domain is not None and domain.n_categories == 1:
            domain = None
        return backend_of(X).label_rows(
            X,
            self._feature(target, "target", epsilon, len(X)),
            self._feature(domain, "domain", epsilon, len(X)),
            conditional=getattr(self, "conditional", False),
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
            n * residual_trace(epsilon, self._label_weight(role)),
            name=f"the {role} kernel",
        )

    def _gram(self, X: Any, kernel: Kernel, labels: RowLabels) -> Gram:
        backend = backend_of(X)
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
            matrix = backend.copied(X)
            return backend.dense_gram(matrix, labels, X.dtype, lapack=lapack, **options)
        if lapack:
            backend.check_dense_memory(len(X), "ridge=0" if no_ridge else 'solver="dense"')
        if lapack or len(X) <= DENSE_ROWS:
            matrix = backend.kernel_matrix(kernel, X)
            return backend.dense_gram(matrix, labels, X.dtype, lapack=lapack, **options)
        return backend.streamed_gram(X, kernel, labels, **options)

    def _store(self, X: Any, kernel: Kernel, gram: Any, found: Components) -> None:
        dual = found.dual - found.dual.mean(axis=0)
        self._offset = gram.offset(dual)
        self.dual_coef_ = backend_of(X).coefficients(dual, X)
        if kernel.name != "precomputed":
            self.X_fit_ = backend_of(X).copied(X)
        elif hasattr(self, "X_fit_"):
            del self.X_fit_
        self.embedding_ = backend_of(X).cast(found.values, X)
        self.n_iter_ = int(found.info.get("n_iterations", 1))

    @property
    def _support(self) -> Array:
        return self.X_fit_
