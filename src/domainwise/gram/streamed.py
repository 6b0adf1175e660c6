"""The default operator: K in tiles that are used and forgotten, O(N (p + r)) memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from domainwise.gram.arrays import ArrayGram
from domainwise.gram.base import Solution
from domainwise.gram.dense import DenseGram, available_memory
from domainwise.gram.solve import NystromPreconditioner, conjugate_gradients
from domainwise.gram.tiles import kernel_matrix, symmetric_product
from domainwise.kernels import Kernel
from domainwise.labels import RowLabels

Array = NDArray[Any]

#: Relative residual that products in float32 can tell from rounding.
FLOAT32_TOLERANCE = 1e-5
#: Landmarks of the preconditioner: cheap next to one product, and enough for default ridges.
PRECONDITIONER_RANK = 500


class StreamedGram(ArrayGram):
    """Centred Gram matrix of the rows of X, evaluated anew for each product.

    Parameters
    ----------
    X : ndarray of shape (N, p)
        float32 rows are multiplied in float32 and summed in float64.
    kernel : Kernel
    labels : RowLabels
    **options
        See :class:`~domainwise.gram.arrays.ArrayGram`.
    """

    def __init__(self, X: Array, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(labels, X.dtype, **options)
        if self.dtype == np.float32:
            self.tol = max(self.tol, FLOAT32_TOLERANCE)
        self.X, self.kernel = X, kernel
        self.prepared = kernel.prepare(X)
        self._preconditioner: NystromPreconditioner | None = None

    def uncentred_product(self, V: Array) -> Array:
        """Return ``K V`` tile by tile."""
        return symmetric_product(self.kernel, self.prepared, V)

    def solve(self, V: Array, shift: float) -> Solution:
        """Solve by preconditioned conjugate gradients; by Cholesky if they stall and it fits."""
        if shift <= 0:
            raise ValueError('a shift of 0 (ridge=0) needs solver="dense"')
        if self._preconditioner is None:
            self._preconditioner = NystromPreconditioner(self._landmark_features())
        result = conjugate_gradients(
            self.product,
            V,
            shift,
            self._preconditioner.at(shift),
            tol=self.tol,
            max_iter=self.max_iter,
            monitor=lambda i, r: self.report(f"conjugate gradients {i}: residual {r:.1e}"),
        )
        info = {
            "linear_solver": "pcg",
            "n_iterations": result.n_iterations,
            "residual": result.residual,
            "preconditioner_rank": len(self._preconditioner.values),
        }
        X = result.X - result.X.mean(axis=0)
        if not result.converged:
            if self._dense_fits():
                self.report("conjugate gradients stalled; solving by Cholesky")
                matrix = kernel_matrix(self.kernel, self.prepared)
                direct = DenseGram(matrix, self.labels, self.dtype).solve(V, shift)
                if direct.info["residual"] < result.residual:
                    direct.info["pcg_iterations"] = result.n_iterations
                    return direct
            warnings.warn(
                f"conjugate gradients stopped at a relative residual of {result.residual:.1e} "
                f"after {result.n_iterations} iterations (tol={self.tol:g}): raise max_iter, tol, "
                "or the ridge",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Solution(X, info, result.KX)

    def _dense_fits(self) -> bool:
        free = available_memory()
        return free is not None and 3 * 8 * self.n_samples**2 < free / 2

    def _landmark_features(self) -> Array:
        """Nystrom features of the rows, in float32: a preconditioner needs no more."""
        rng = np.random.default_rng(self.seed)
        m = min(PRECONDITIONER_RANK, self.n_samples)
        chosen = np.sort(rng.choice(self.n_samples, m, replace=False))
        left, right = self.prepared.left, self.prepared.right[chosen]
        constant = self.kernel.constant
        W = self.kernel.block(left[chosen], right).astype(np.float64) + constant
        d, U = np.linalg.eigh((W + W.T) / 2)
        keep = d > m * np.finfo(self.dtype).eps * max(float(d[-1]), 0.0)
        root = U[:, keep] / np.sqrt(d[keep])
        features = np.empty((self.n_samples, int(keep.sum())), dtype=np.float32)
        for i in range(0, self.n_samples, 4096):
            block = self.kernel.block(left[i : i + 4096], right) + self.dtype.type(constant)
            features[i : i + 4096] = block @ root.astype(self.dtype)
        features -= features.mean(axis=0, dtype=np.float64).astype(np.float32)
        return features
