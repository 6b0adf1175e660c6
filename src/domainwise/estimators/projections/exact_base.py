"""Base class of the exact estimators, which store their training rows."""

from __future__ import annotations

from typing import Any

from domainwise.algebra import labels as factors
from domainwise.algebra.backends import Backend, refuse_dask
from domainwise.algebra.kernels.checks import positive_part, refuse_unsound
from domainwise.algebra.kernels.functions import Kernel
from domainwise.algebra.methods.components import standardize
from domainwise.base.inputs import Labels, check_n_components
from domainwise.base.namespace import cast, namespace
from domainwise.estimators.projections.projection import (
    MethodProjection,
    fixed_seed,
    resolved_kernel,
)

#: Up to this many rows, the Gram matrix is stored, which takes less than 80 MB.
DENSE_ROWS = 3000


class KernelProjection(MethodProjection):
    """An exact projection, with coefficients for every training row."""

    solver: str
    tol: float
    max_iter: int
    verbose: int
    #: Default for methods without this argument; 0 would require the dense solver.
    ridge: float = 1.0

    def _fit(self, backend: Backend, X: Any, y: Any, sample_domain: Any) -> None:
        fast_name = f"Fast{type(self).__name__}"
        refuse_dask(self, X, f"Use {fast_name}, which computes on the cluster")
        rows = backend.check_rows(self, X, ensure_min_samples=2)
        check_n_components(self.n_components, len(rows))
        target, domain = self._check_labels(backend, y, sample_domain, rows)
        self._warn_about_domains(sample_domain, domain, len(rows))
        labels = self._label_rows(backend, rows, target, domain if self._uses_domain else None)
        kernel = resolved_kernel(self, backend, rows)
        gram, indefinite_K, eigenvectors = self._gram(backend, rows, kernel, labels)
        is_continuous = target is not None and target.values is not None
        solution = self._solve(gram, labels.space, is_continuous)
        solution = standardize(gram, solution, labels.space, warn=self.n_components is not None)
        self._record(kernel, None if target is None else target.names, domain.names)
        self._record_solution(gram, solution)
        self.dual_coef_ = solution.dual - solution.dual.mean(axis=0)
        self._offset, embedding = gram.offset(self.dual_coef_), solution.values
        if eigenvectors is not None:  # indefinite kernel: project training rows as transform does
            self.dual_coef_ = eigenvectors @ (eigenvectors.T @ self.dual_coef_)
            embedding = indefinite_K @ self.dual_coef_
            self._offset = embedding.mean(0)
            embedding = embedding - self._offset
        self.__dict__.pop("X_fit_", None)  # from an earlier fit
        if kernel.name != "precomputed":
            self.X_fit_ = backend.copy_rows(rows)
        self.embedding_ = backend.like_rows(embedding, rows)
        self.n_iter_ = int(solution.info.get("n_iterations", 1))

    def _label_rows(
        self, backend: Backend, rows: Any, target: Labels | None, domain: Labels | None
    ) -> factors.RowLabels:
        if domain is not None and domain.n_categories == 1:
            domain = None
        return backend.label_rows(
            rows,
            self._feature(target, "target", len(rows)),
            self._feature(domain, "domain", len(rows)),
            conditional=self.conditional,
            target_values=None if target is None else target.values,
        )

    def _feature(self, labels: Labels | None, role: str, n: int) -> factors.Feature | None:
        if labels is None:
            return None
        if labels.codes is not None:
            return factors.Feature(labels.codes, labels.n_categories)
        kernel, gamma, max_residual = self._label_kernel(role)
        name, tolerance = f"the {role} kernel", n * max_residual
        return factors.continuous_feature(labels.values, kernel, gamma, tolerance, name=name)

    def _gram(self, backend: Backend, rows: Any, kernel: Kernel, labels: factors.RowLabels) -> Any:
        """Return the result of :func:`make_gram` for this estimator's solver."""
        options = {name: getattr(self, name) for name in ("tol", "max_iter", "verbose")}
        options["seed"] = fixed_seed(self.random_state)
        has_no_ridge = self.ridge == 0
        use_lapack = self.solver == "dense" or has_no_ridge
        if self.solver == "exact" and has_no_ridge:
            raise ValueError(
                'ridge=0 needs the full Gram matrix, which solver="exact" does not store. Use '
                'solver="dense" or solver="auto".'
            )
        if use_lapack and kernel.name != "precomputed":
            backend.check_dense_memory(len(rows), "ridge=0" if has_no_ridge else 'solver="dense"')
        if use_lapack:
            options["lapack"] = True
        use_dense = use_lapack or len(rows) <= DENSE_ROWS
        return make_gram(backend, rows, kernel, labels, dense=use_dense, **options)


def make_gram(
    backend: Backend,
    rows: Any,
    kernel: Kernel,
    labels: factors.RowLabels,
    *,
    dense: bool,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """Return the Gram operator, the kernel matrix, and its eigenvectors with positive eigenvalues.

    The matrix and the eigenvectors are None unless the kernel is indefinite.
    """
    is_precomputed = kernel.name == "precomputed"
    if not (is_precomputed or dense):
        refuse_unsound(kernel, len(rows))
        return backend.streamed_gram(rows, kernel, labels, **options), None, None
    indefinite_K = eigenvectors = None
    matrix = backend.copy_rows(rows) if is_precomputed else backend.kernel_matrix(kernel, rows)
    if not kernel.sound:
        indefinite_K = cast(matrix, namespace(matrix).float64)
        matrix, eigenvectors = positive_part(indefinite_K)
    return backend.dense_gram(matrix, labels, rows.dtype, **options), indefinite_K, eigenvectors
