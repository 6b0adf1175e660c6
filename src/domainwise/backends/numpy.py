"""NumPy arrays, and whatever scikit-learn turns into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from domainwise.arrays import Array, is_dask, is_tensor
from domainwise.backends.base import Backend
from domainwise.checks.inputs import Labels, check_sample_domain, check_target
from domainwise.checks.rows import validate_rows
from domainwise.gram import DenseGram, Gram, StreamedGram
from domainwise.gram.cells import sum_cells
from domainwise.gram.dense import check_dense_memory
from domainwise.gram.nystrom import sum_rows
from domainwise.gram.tiles import cross_product, kernel_matrix
from domainwise.kernels.fourier import Basis
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import RowLabels, label_rows


class NumpyBackend(Backend):
    """Rows, labels and models in memory."""

    check_dense_memory = staticmethod(check_dense_memory)
    sum_rows = staticmethod(sum_rows)
    sum_cells = staticmethod(sum_cells)

    def check_rows(self, estimator: Any, X: Any, **options: Any) -> Any:
        """Check X and note, or compare, its number and names of features."""
        return np.asarray(validate_rows(estimator, X, dtype=(np.float64, np.float32), **options))

    def check_target(self, y: Any, rows: Array, kernel: Any, **options: Any) -> Labels:
        """Check y against the rows."""
        _refuse_distant(y, "y")
        return check_target(y, len(rows), kernel, **options)

    def check_sample_domain(self, sample_domain: Any, rows: Array, kernel: Any) -> Labels:
        """Check sample_domain against the rows."""
        _refuse_distant(sample_domain, "sample_domain")
        return check_sample_domain(sample_domain, len(rows), kernel)

    def check_same_place(self, coefficients: Any, rows: Array) -> None:
        """Refuse to project arrays with a model that holds tensors."""
        if is_tensor(coefficients):
            raise TypeError(
                f"X is not a tensor, but this model holds tensors on {coefficients.device}: pass a "
                'tensor on that device, or call to("numpy") on the model first'
            )

    def label_rows(self, rows: Array, *features: Any, **options: Any) -> RowLabels:
        """Build the label space of the rows."""
        return label_rows(len(rows), *features, **options)

    def kernel_matrix(self, kernel: Kernel, rows: Array) -> Array:
        """Evaluate the whole kernel matrix in float64."""
        return kernel_matrix(kernel, kernel.prepare(rows))

    def dense_gram(self, K: Array, labels: RowLabels, dtype: Any, **options: Any) -> Gram:
        """Operator of a stored kernel matrix, which is overwritten if it is in float64."""
        return DenseGram(K.astype(np.float64, copy=False), labels, dtype, **options)

    def streamed_gram(self, rows: Any, kernel: Kernel, labels: RowLabels, **options: Any) -> Gram:
        """Operator of a kernel matrix that is not stored."""
        return StreamedGram(rows, kernel, labels, **options)

    def indexable(self, rows: Any) -> Any:
        """Return rows as an array."""
        return np.asarray(rows)

    def kept_rows(self, rows: Any) -> Any:
        """Return a copy."""
        return np.array(rows)

    def like_rows(self, thin: Array, rows: Array) -> Any:
        """Return values in the precision of the rows."""
        return np.asarray(thin, dtype=rows.dtype)

    def settle(self, model: Any, X: Any) -> None:
        """Fitted arrays are in memory already."""

    def cross_product(self, kernel: Basis, rows: Array, support: Any, dual: Array) -> Array:
        """Return ``k(rows, support) dual``, up to the kernel's constant."""
        if is_dask(support):
            from domainwise.gram.dask.operator import cross_in_memory

            return cross_in_memory(kernel, rows, support, dual)
        return cross_product(kernel, rows, kernel.prepare(support), dual)


def _refuse_distant(labels: Any, name: str) -> None:
    """Labels on a GPU belong to rows on that GPU, and labels on Dask to rows on Dask."""
    if is_dask(labels):
        raise TypeError(
            f"{name} is a Dask collection but X is not: pass X as a Dask collection, too, or "
            f"{name}.compute()"
        )
    if is_tensor(labels) and labels.device.type != "cpu":
        raise ValueError(f"{name} is on {labels.device}, but X is not a tensor there")
