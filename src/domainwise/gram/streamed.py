"""The default operator: K in tiles that are used and forgotten, O(N (p + r)) memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.gram.dense import DenseGram, available_memory, dense_fits
from domainwise.gram.iterative import IterativeGram
from domainwise.gram.precondition import StoredPreconditioner, inverse_root, landmark_rows
from domainwise.gram.tiles import kernel_matrix, panels, symmetric_product
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import RowLabels


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
