"""The backend of NumPy arrays, and what others do differently: tensors and Dask collections.

An estimator looks its backend up once in each call of ``fit``, ``partial_fit`` or ``transform`` and
hands it on. *Rows* are X after :meth:`Backend.check_rows`; a *thin* is what the backend's Gram
operators multiply (:mod:`domainwise.methods.contract`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from domainwise.arrays import is_dask, is_tensor
from domainwise.checks.inputs import Labels, check_sample_domain, check_target
from domainwise.checks.kernels import check_kernel, check_precomputed
from domainwise.checks.rows import validate_rows
from domainwise.gram import DenseGram, Gram, StreamedGram
from domainwise.gram.cells import CellSums, sum_cells
from domainwise.gram.dense import check_dense_memory
from domainwise.gram.nystrom import NystromSums, sum_rows
from domainwise.gram.tiles import cross_product, kernel_matrix
from domainwise.kernels.fourier import Basis
from domainwise.kernels.functions import Kernel, make_kernel
from domainwise.labels.factors import Feature, RowLabels, label_rows
from domainwise.methods.contract import Thin


class Backend:
    """What estimators need to know of one kind of X: here of arrays, and what becomes one."""

    # What came from the user

    def split_labels(self, X: Any, y: Any, sample_domain: Any) -> tuple[Any, Any, Any]:
        """Return X, y and sample_domain, where the latter may have been named columns of X."""
        return X, y, sample_domain

    def check_rows(
        self, estimator: Any, X: Any, *, reset: bool = True, ensure_min_samples: int = 1
    ) -> Any:
        """Check X and note, or compare, its number and names of features."""
        options = {"reset": reset, "ensure_min_samples": ensure_min_samples}
        return np.asarray(validate_rows(estimator, X, dtype=(np.float64, np.float32), **options))

    def check_target(self, y: Any, rows: Any, kernel: Any, *, least_classes: int = 2) -> Labels:
        """Check y against the rows."""
        _refuse_distant(y, "y")
        return check_target(y, len(rows), kernel, least_classes=least_classes)

    def check_sample_domain(self, sample_domain: Any, rows: Any, kernel: Any) -> Labels:
        """Check sample_domain against the rows."""
        _refuse_distant(sample_domain, "sample_domain")
        return check_sample_domain(sample_domain, len(rows), kernel)

    def check_precomputed(self, K: Any) -> bool:
        """Check a training kernel matrix; whether it is one."""
        return check_precomputed(K)

    def check_dense_memory(self, n_samples: int, what: str) -> None:
        """Refuse a dense computation that does not fit memory."""
        check_dense_memory(n_samples, what)

    def check_same_place(self, coefficients: Any, rows: Any) -> None:
        """Refuse to project rows with a fitted model that is elsewhere."""
        if is_tensor(coefficients):
            raise TypeError(
                f"X is not a tensor, but this model holds tensors on {coefficients.device}: pass a "
                'tensor on that device, or call to("numpy") on the model first'
            )

    # The exact family

    def resolve_kernel(self, kernel: Any, rows: Any, **arguments: Any) -> Kernel:
        """Resolve kernel arguments on the rows."""
        return check_kernel(make_kernel(kernel, rows, **arguments), rows)

    def label_rows(self, rows: Any, *features: Feature | None, **options: Any) -> RowLabels:
        """Build the label space of the rows; see :func:`~.labels.factors.label_rows`."""
        return label_rows(len(rows), *features, **options)

    def kernel_matrix(self, kernel: Kernel, rows: Any) -> Any:
        """Evaluate the whole kernel matrix in float64."""
        return kernel_matrix(kernel, kernel.prepare(rows))

    def dense_gram(self, K: Any, labels: RowLabels, dtype: Any, **options: Any) -> Gram:
        """Operator of a stored kernel matrix, which may be overwritten."""
        return DenseGram(K.astype(np.float64, copy=False), labels, dtype, **options)

    def streamed_gram(self, rows: Any, kernel: Kernel, labels: RowLabels, **options: Any) -> Gram:
        """Operator of a kernel matrix that is not stored."""
        return StreamedGram(rows, kernel, labels, **options)

    # The family on landmarks

    def indexable(self, rows: Any) -> Any:
        """Return rows that NumPy indexes take NumPy arrays from."""
        return np.asarray(rows)

    #: Sum over the features of rows, all at once or cell by cell.
    sum_rows: Callable[..., NystromSums] = staticmethod(sum_rows)
    sum_cells: Callable[..., CellSums] = staticmethod(sum_cells)

    def sum_training_rows(self, estimator: Any, X: Any, y: Any, sample_domain: Any) -> NystromSums:
        """Fix what an estimator needs before it sees rows, and sum over all of X."""
        return estimator._sum_at_once(self, X, y, sample_domain)

    # Fitted models

    def kept_rows(self, rows: Any) -> Any:
        """Return rows that later changes of the caller's X do not reach."""
        return np.array(rows)

    def like_rows(self, thin: Thin, rows: Any) -> Any:
        """Return values of the rows in the precision, and in the pieces, of the rows."""
        return np.asarray(thin, dtype=rows.dtype)

    def settle(self, model: Any, X: Any) -> None:
        """Bring the fitted arrays of a model to where X is."""

    def cross_product(self, kernel: Basis, rows: Any, support: Any, dual: Any) -> Any:
        """Return ``k(rows, support) dual``, up to the kernel's constant."""
        if is_dask(support):
            from domainwise.gram.dask.operator import cross_in_memory

            return cross_in_memory(kernel, rows, support, dual)
        return cross_product(kernel, rows, kernel.prepare(support), dual)

    def transform(self, model: Any, rows: Any) -> Any:
        """Project rows with a fitted model."""
        return model._project(self, rows)

    def predict(self, model: Any, method: str, rows: Any) -> Any:
        """Call a method of a fitted model that takes rows at hand."""
        return getattr(model, method)(rows)

    def explaining_memory(self, X: Any) -> AbstractContextManager[None]:
        """Say what to change when memory runs out."""
        return nullcontext()


def _refuse_distant(labels: Any, name: str) -> None:
    """Labels on a GPU belong to rows on that GPU, and labels on Dask to rows on Dask."""
    if is_dask(labels):
        raise TypeError(
            f"{name} is a Dask collection but X is not: pass X as a Dask collection, too, or "
            f"{name}.compute()"
        )
    if is_tensor(labels) and labels.device.type != "cpu":
        raise ValueError(f"{name} is on {labels.device}, but X is not a tensor there")
