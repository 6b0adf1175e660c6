"""Operators that only multiply: linear systems by preconditioned conjugate gradients.

The default one evaluates K in tiles that are used and forgotten, in O(N (p + r)) memory.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from domainwise.arrays import Array
from domainwise.gram.dense import DenseGram, available_memory, dense_fits
from domainwise.gram.precondition import (
    Preconditioner,
    StoredPreconditioner,
    inverse_root,
    landmark_rows,
)
from domainwise.gram.rows import RowsGram
from domainwise.gram.solve import conjugate_gradients
from domainwise.gram.tiles import kernel_matrix, panels, symmetric_product
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import RowLabels
from domainwise.methods.contract import Solution, Thin

#: Relative residual that products in float32 can tell from rounding.
FLOAT32_TOLERANCE = 1e-5


class IterativeGram(RowsGram):
    """Centred Gram matrix that is not stored; products are all there is.

    A subclass multiplies, and builds a preconditioner.
    """

    def __init__(self, labels: Any, dtype: Any, device: Any = "cpu", **options: Any) -> None:
        super().__init__(labels, dtype, device, **options)
        if self.dtype == np.float32:
            self.tol = max(self.tol, FLOAT32_TOLERANCE)
        self._preconditioner: Preconditioner | None = None

    @abstractmethod
    def _build_preconditioner(self) -> Preconditioner:
        """Approximate the inverse from a few landmarks."""

    def _stored(self) -> DenseGram | None:
        """Return the same matrix in memory, where that is affordable."""
        return None

    def accurate_product(self, V: Thin) -> Thin:
        """Return a product for the true residual, where others are quick and rough."""
        return self.product(V)

    def preconditioner(self, shift: float) -> Callable[[Thin], Thin]:
        """Return the inverse that a few landmarks know."""
        if self._preconditioner is None:
            self._preconditioner = self._build_preconditioner()
        return self._preconditioner.at(shift)

    def solve(self, V: Thin, shift: float) -> Solution:
        """Solve by preconditioned conjugate gradients; directly if they stall and it fits."""
        return self.solve_shifts(V, [shift])[0]

    def solve_shifts(self, V: Thin, shifts: Sequence[float]) -> list[Solution]:
        """Solve with all shifts side by side: kernel values are computed once for all of them."""
        if min(shifts, default=1.0) <= 0:
            raise ValueError('a shift of 0 (ridge=0) needs solver="dense"')
        if not shifts:
            return []
        inverses, n = [self.preconditioner(shift) for shift in shifts], len(shifts)

        def precondition(R: Thin) -> Thin:
            parts = self.xp.hsplit(R, n)
            return self.hstack([inverse(P) for inverse, P in zip(inverses, parts, strict=True)])

        result = conjugate_gradients(
            self.product,
            V if n == 1 else self.hstack([V] * n),
            self.placed(np.repeat(np.asarray(shifts, dtype=np.float64), V.shape[1])),
            inverses[0] if n == 1 else precondition,
            tol=self.tol,
            max_iter=self.max_iter,
            monitor=lambda i, r: self.report(f"conjugate gradients {i}: residual {r:.1e}"),
            accurate_product=self.accurate_product,
        )
        stored = None if result.converged else self._stored()
        if stored is not None:
            self.report("conjugate gradients stalled; solving by Cholesky")
            direct = [stored.solve(V, shift) for shift in shifts]
            if max(one.info["residual"] for one in direct) < result.residual:
                for one in direct:
                    one.info["pcg_iterations"] = result.n_iterations
                return direct
        if not result.converged:
            warnings.warn(
                "conjugate gradients stopped at a relative residual of "
                f"{result.residual:.1e} after {result.n_iterations} iterations (tol={self.tol:g}): "
                "raise max_iter, tol, or the ridge",
                ConvergenceWarning,
                stacklevel=2,
            )
        assert self._preconditioner is not None
        info = {
            "linear_solver": "pcg",
            "n_iterations": result.n_iterations,
            "residual": result.residual,
            "preconditioner_rank": len(self._preconditioner.values),
        }
        parts = zip(self.xp.hsplit(result.X, n), self.xp.hsplit(result.KX, n), strict=True)
        return [Solution(X - X.mean(0), dict(info), KX) for X, KX in parts]


class StreamedGram(IterativeGram):
    """Centred Gram matrix of the rows of X, evaluated anew for each product.

    Rows in float32 are multiplied in float32 and summed in float64.
    """

    def __init__(self, X: Array, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(labels, X.dtype, **options)
        self.X, self.kernel = X, kernel
        self.prepared = kernel.prepare(X)

    def uncentred_product(self, V: Array) -> Array:
        """Return ``K V`` tile by tile."""
        return symmetric_product(self.kernel, self.prepared, V)

    def _build_preconditioner(self) -> StoredPreconditioner:
        return StoredPreconditioner(self._landmark_features())

    def _stored(self) -> DenseGram | None:
        if not dense_fits(self.n_samples, available_memory()):
            return None
        return DenseGram(kernel_matrix(self.kernel, self.prepared), self.labels, self.dtype)

    def _landmark_features(self) -> Array:
        """Nystrom features of the rows, in float32: a preconditioner needs no more."""
        chosen = landmark_rows(self.n_samples, self.seed)
        left, right = self.prepared.left, self.prepared.right[chosen]
        constant = self.kernel.constant
        W = self.kernel.block(left[chosen], right).astype(np.float64) + constant
        _, root = inverse_root((W + W.T) / 2, float(np.finfo(self.dtype).eps))
        features = np.empty((self.n_samples, root.shape[1]), dtype=np.float32)
        for rows in panels(self.n_samples, 4096):
            features[rows] = (self.kernel.block(left[rows], right) + constant) @ root.astype(
                self.dtype
            )
        features -= features.mean(axis=0, dtype=np.float64).astype(np.float32)
        return features
