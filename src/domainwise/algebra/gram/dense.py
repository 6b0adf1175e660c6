"""A Gram matrix that is stored in memory: the fastest operator up to a few thousand rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import eigh

from domainwise.algebra.gram.rows import RowsGram, constant_part
from domainwise.algebra.kernels.functions import check_finite
from domainwise.algebra.labels import RowLabels
from domainwise.algebra.methods.contract import Images, Matrix, RitzPairs, Solution, pairs_within
from domainwise.base import arrays
from domainwise.base.arrays import Array, available_memory
from domainwise.base.messages import warn_caller

#: Up to this number of rows, a full eigendecomposition is faster than an iteration with products.
LAPACK_ROWS = 800
#: Number of power iterations with K, applied to the random columns with which eigensolvers start.
POWER_ITERATIONS = 4
#: Inverses in float32 are tried if the trace of K is between the first two numbers, so that float32
#: can represent the entries of K, and the shift is above the third number times the trace.
MIN_TRACE, MAX_TRACE, MIN_SHIFT = 1e-20, 1e30, 1e-6
#: Maximum number of refinements of a solution, and the relative residual at which they stop.
MAX_REFINEMENTS, REFINED_RESIDUAL = 6, 1e-12
#: Float32 rounding can cause negative eigenvalues, down to minus this fraction of the largest.
MAX_NEGATIVE = 1e-4


class DenseGram(RowsGram):
    """A centred Gram matrix that is stored.

    ``matrix`` is the uncentred matrix minus a constant; if it is float64, it is centred in place.
    ``dtype`` is the precision of the rows. ``lapack=True`` solves all eigenproblems with LAPACK.
    """

    def __init__(
        self, matrix: Matrix, labels: RowLabels, dtype: Any, *, lapack: bool = False, **options: Any
    ) -> None:
        super().__init__(labels, len(matrix), dtype, matrix.device, **options)
        self.lapack = lapack or len(matrix) <= LAPACK_ROWS
        self._leading_pairs: RitzPairs | None = None
        self.K = arrays.cast(matrix, self.xp.float64)
        means = self.K.mean(1) if self.roots is None else self._average(self.K)
        self._row_means = check_finite(means, self.dtype)
        self.K -= means
        self.K -= (means - (means.mean() if self.roots is None else self._average(means)))[:, None]
        if self.roots is not None:
            self.K *= self.roots
            self.K *= self.roots.T

    def _average(self, A: Matrix) -> Matrix:
        assert self.roots is not None
        return A @ self.roots[:, 0] ** 2 / self.n_samples

    def product(self, V: Matrix) -> Matrix:
        """Return ``K V``."""
        KV = self.uncentred_product(V - self.constant_part(V))
        KV -= self.constant_part(KV)
        return check_finite(KV, self.dtype)

    def uncentred_product(self, V: Matrix) -> Matrix:
        """Return ``K V``; the stored K is already centred."""
        return (V.T @ self.K).T  # faster than K V, which copies more of K

    def solve(self, V: Matrix, shift: float) -> Solution:
        """Solve by Cholesky, or by eigendecomposition of K if that fails or the shift is 0."""
        info: dict[str, Any] = {"linear_solver": "cholesky"}
        apply_inverse = cholesky_inverse(self.K, shift, self.roots) if shift > 0 else None
        if apply_inverse is not None:
            X = apply_inverse(V)
        else:
            X, rank = spectral_solve(self.K, V, shift)
            X -= self.constant_part(X)
            info = {"linear_solver": "eigh", "rank": rank}
            if shift == 0 and rank < self.n_rows - 1:
                warn_caller(
                    f"the kernel matrix is singular (numerical rank {rank} of at most "
                    f"{self.n_rows - 1}) and ridge=0, so projections of new rows depend on "
                    "rounding errors. Pass a positive ridge."
                )
        KX = self.uncentred_product(X)
        V_norms, info["residual"] = arrays.column_norms(V), largest_residual(V - KX - shift * X, V)
        # K X is imprecise if X is large, and V - shift X is imprecise if its two terms cancel.
        terms_cancel = arrays.column_norms(KX) < 1e-3 * V_norms
        image = self.xp.where(terms_cancel, KX, V - shift * X) if shift > 0 else KX
        return Solution(X, image - self.constant_part(image), info)

    def solve_shifts(self, V: Matrix, shifts: Sequence[float]) -> list[Solution]:
        """Solve with each shift, in float32 with refinement in float64 if that converges."""
        if self.lapack or len(shifts) < 2 or self.xp is not np:
            return super().solve_shifts(V, shifts)
        return [self._float32_solver.solve(V, shift) or self.solve(V, shift) for shift in shifts]

    @cached_property
    def _float32_solver(self) -> RefinedCholesky:
        return RefinedCholesky(self.K, self.roots)

    def preconditioner(self, shift: float) -> Callable[[Matrix], Matrix]:
        """Return a function that applies ``(K + shift I)^-1``, in float32 if precise enough."""
        if shift >= self._float32_solver.trace:  # at least as large as all eigenvalues of K
            return lambda R: R
        apply_inverse = self._float32_solver.inverse(shift)
        apply_inverse = apply_inverse or cholesky_inverse(self.K, shift, self.roots)
        return apply_inverse or super().preconditioner(shift)

    def first_block(self, k: int) -> Matrix:
        """Return random columns after a few power iterations with K in float32."""
        block, K32 = super().first_block(k + 10), self._float32_solver.K32
        block = arrays.cast(block - self.constant_part(block), K32.dtype)
        for _ in range(POWER_ITERATIONS if self._float32_solver.is_in_range else 0):
            block = (block.T @ K32).T / self._float32_solver.trace
        return arrays.cast(block, self.xp.float64)

    def leading(self, k: int, deflation: tuple[Matrix, Matrix, Array] | None = None) -> RitzPairs:
        """Return leading eigenpairs; those of K itself are stored, for further calls."""
        if deflation is not None:
            return super().leading(k, deflation)
        k, pairs = min(k, self.n_rows - 1), self._leading_pairs
        if pairs is None or k > len(pairs.values):
            use_lapack = self.lapack and self.xp is np
            pairs = self._leading_pairs = (
                self._lapack_pairs(k) if use_lapack else super().leading(k)
            )
        return RitzPairs(pairs.values[:k], pairs.X[:, :k], pairs.KX[:, :k], pairs.info)

    def _lapack_pairs(self, k: int) -> RitzPairs:
        n = self.n_rows
        eigenvalues, X = eigh(self.K, subset_by_index=[n - k, n - 1])
        X = X[:, ::-1] - self.constant_part(X[:, ::-1])
        info = {"eigen_solver": "lapack", "converged": True}
        return RitzPairs(eigenvalues[::-1], X, self.K @ X, info)

    def ritz(
        self, images: Images, k: int, *, depth: int = 1, start: Matrix = None, **options: Any
    ) -> RitzPairs:
        """Return leading eigenpairs; ``lapack=True`` uses LAPACK instead of an iteration."""
        if not self.lapack:
            # With a preconditioner, add only a few columns per step: small products are cheap.
            options |= {"n_residuals": k + 4} if options.get("precondition") else {}
            return super().ritz(images, k, depth=depth, start=start, **options)
        identity = self.to_device(np.eye(self.n_rows))
        centring = identity - self.constant_part(identity)
        KK = self.K @ self.K if depth == 2 else None
        return pairs_within(self, images, k, centring, self.K, KK)


def check_dense_memory(
    n_samples: int,
    task: str,
    advice: str = 'use solver="exact" with a positive ridge, which does not store them',
) -> None:
    """Raise MemoryError if a dense computation does not fit into the free memory."""
    needed_bytes, free_bytes = 4 * 8 * n_samples**2, available_memory()
    if free_bytes is not None and needed_bytes > free_bytes:
        raise MemoryError(
            f"{task} stores {n_samples} x {n_samples} matrices, which need about "
            f"{needed_bytes / 2**30:.1f} GiB, but only {free_bytes / 2**30:.1f} GiB are free; "
            f"{advice}"
        )


def dense_fits(n_samples: int, free_bytes: int | None) -> bool:
    """Return whether three N x N matrices (K and copies) fit into half of the free memory."""
    return free_bytes is not None and 3 * 8 * n_samples**2 < free_bytes / 2


def cholesky_inverse(K: Any, shift: float, roots: Any = None) -> Callable[[Any], Any] | None:
    """Return a function that applies ``(K + shift I)^-1`` to a centred V; None if Cholesky fails.

    Adding a constant to K (with weights, times the square ``roots`` of weights) makes the zero
    eigenvalue positive and does not affect the result.
    """
    n, constants = len(K), 1.0 if roots is None else arrays.cast(roots * roots.T, K.dtype)
    A = K + max(float(arrays.namespace(K).trace(K)), shift) / n * constants
    A.reshape(-1)[:: n + 1] += shift
    apply_inverse = arrays.cholesky_solver(A)
    if apply_inverse is None:
        return None

    def solve(V: Any) -> Any:
        X = apply_inverse(V)
        return X - constant_part(X, roots)

    return solve


class RefinedCholesky:
    """A solver of ``(K + shift I) X = V`` for several shifts, with inverses in float32.

    A factorization takes half as long as in float64. A few refinements with K in float64 make the
    solution precise, unless the system is nearly singular. K is centred and positive semi-definite.
    """

    def __init__(self, K: Any, roots: Any = None) -> None:
        self.K, self.roots, self.trace = K, roots, float(arrays.namespace(K).trace(K))
        self.is_in_range = MIN_TRACE < self.trace < MAX_TRACE
        self.K32 = arrays.cast(K, arrays.namespace(K).float32) if self.is_in_range else K
        self._inverses: dict[float, Callable[[Any], Any] | None] = {}

    def inverse(self, shift: float) -> Callable[[Any], Any] | None:
        """Return a function that applies the inverse to a centred V; None if too imprecise."""
        if not self.is_in_range or not shift > MIN_SHIFT * self.trace:
            return None
        if shift not in self._inverses:
            self._inverses[shift] = cholesky_inverse(self.K32, shift, self.roots)
        apply_float32 = self._inverses[shift]
        if apply_float32 is None:
            return None

        def apply_inverse(V: Any) -> Any:
            V_norms = arrays.column_norms(V)
            V_norms = V_norms + (V_norms == 0)
            X = apply_float32(arrays.cast(V / V_norms, self.K32.dtype)) * V_norms
            return X - constant_part(X, self.roots)

        return apply_inverse

    def solve(self, V: Array, shift: float) -> Solution | None:
        """Return the solution, or None if refinement does not converge."""
        apply_inverse = self.inverse(shift)
        if apply_inverse is None:
            return None
        X, R = np.zeros_like(V), V
        for _ in range(MAX_REFINEMENTS):
            X = X + apply_inverse(R)
            KX = (X.T @ self.K).T
            R = V - KX - shift * X
            residual = largest_residual(R, V)
            if residual <= REFINED_RESIDUAL:
                info = {"linear_solver": "cholesky, refined", "residual": residual}
                return Solution(X, KX - constant_part(KX, self.roots), info)
        return None


def spectral_solve(K: Any, V: Any, shift: float) -> tuple[Any, int]:
    """Solve ``(K + shift I) X = V`` by ``eigh``; if the shift is 0, use the pseudo-inverse of K.

    Eigenvalues up to N eps times the largest one count as zero. Return the solution and the number
    of other eigenvalues, which is the numerical rank.
    """
    xp = arrays.namespace(K)
    d, U = xp.linalg.eigh(K)
    if float(d[0]) < -MAX_NEGATIVE * float(d[-1]) - shift:
        warn_caller(
            "the kernel is not positive semi-definite (its centred matrix has eigenvalues from "
            f"{d[0]:.1e} to {d[-1]:.1e}). Projections of new rows differ in scale from those of "
            "the training rows. Choose another kernel, or a larger ridge."
        )
    is_nonzero = d > len(d) * np.finfo(float).eps * max(float(d[-1]), 0.0)
    shifted_d = xp.where(is_nonzero, d, 0.0) + shift
    inverse_d = xp.where(shifted_d > 0, 1.0 / xp.where(shifted_d > 0, shifted_d, 1.0), 0.0)
    return U @ (inverse_d[:, None] * (U.T @ V)), int(is_nonzero.sum())


def largest_residual(R: Any, V: Any) -> float:
    """Return the largest norm of a column of R, relative to that of the same column of V."""
    V_norms = arrays.column_norms(V)
    relative_norms = arrays.column_norms(R) / (V_norms + (V_norms == 0))
    return float(relative_norms.max()) if len(relative_norms) else 0.0
