"""The default operator: K in tiles that are used and forgotten, O(N (p + r)) memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.gram.dense import DenseGram, available_memory
from domainwise.gram.iterative import PRECONDITIONER_RANK, IterativeGram
from domainwise.gram.solve import NystromPreconditioner
from domainwise.gram.tiles import kernel_matrix, symmetric_product
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import RowLabels
from domainwise.methods.contract import Solution


class StreamedGram(IterativeGram):
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
        self.X, self.kernel = X, kernel
        self.prepared = kernel.prepare(X)

    def uncentred_product(self, V: Array) -> Array:
        """Return ``K V`` tile by tile."""
        return symmetric_product(self.kernel, self.prepared, V)

    def _build_preconditioner(self) -> NystromPreconditioner:
        return NystromPreconditioner(self._landmark_features())

    def _direct(self, V: Array, shift: float) -> Solution | None:
        """Solve by Cholesky, if the whole matrix fits."""
        free = available_memory()
        if free is None or 3 * 8 * self.n_samples**2 >= free / 2:
            return None
        self.report("conjugate gradients stalled; solving by Cholesky")
        matrix = kernel_matrix(self.kernel, self.prepared)
        return DenseGram(matrix, self.labels, self.dtype).solve(V, shift)

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
