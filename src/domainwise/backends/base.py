"""Everything follows X: what is done differently for arrays, tensors and Dask, in one place.

:func:`backend_of` looks at X once; estimators then call the same functions whatever X is.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from domainwise.arrays import Array
from domainwise.checks.inputs import Labels, check_precomputed, check_sample_domain, check_target
from domainwise.gram import DenseGram, Gram, StreamedGram
from domainwise.gram.dense import check_dense_memory
from domainwise.gram.nystrom import NystromSums, sum_rows
from domainwise.gram.tiles import cross_product, kernel_matrix
from domainwise.kernels.functions import Kernel, make_kernel
from domainwise.labels.factors import RowLabels, label_rows


class NumpyBackend:
    """NumPy arrays, and whatever scikit-learn turns into them."""

    make_kernel = staticmethod(make_kernel)
    check_precomputed = staticmethod(check_precomputed)
    check_dense_memory = staticmethod(check_dense_memory)
    sum_rows = staticmethod(sum_rows)

    def label_columns(self, X: Any, y: Any, sample_domain: Any) -> tuple[Any, Any, Any]:
        """Return X, y and sample_domain, where these may be named columns of X."""
        return X, y, sample_domain

    def all_sums(self, estimator: Any, X: Any, y: Any, sample_domain: Any) -> NystromSums:
        """Begin a Nystrom estimator and sum over all rows."""
        return estimator._sum_at_once(X, y, sample_domain)

    def check_rows(self, estimator: Any, X: Any, **options: Any) -> Array:
        """Check X and note, or compare, its number and names of features."""
        return np.asarray(validate_data(estimator, X, dtype=(np.float64, np.float32), **options))

    def check_target(self, y: Any, X: Array, kernel: Any, **options: Any) -> Labels:
        """Check y against the rows of X."""
        _refuse_distant(y, "y")
        return check_target(y, len(X), kernel, **options)

    def check_sample_domain(self, sample_domain: Any, X: Array, kernel: Any) -> Labels:
        """Check sample_domain against the rows of X."""
        _refuse_distant(sample_domain, "sample_domain")
        return check_sample_domain(sample_domain, len(X), kernel)

    def check_model(self, coefficients: Any, X: Array) -> None:
        """Refuse to project arrays with a model that holds tensors."""
        if is_tensor(coefficients):
            raise TypeError(
                f"X is not a tensor, but this model holds tensors on {coefficients.device}: pass a "
                'tensor on that device, or call to("numpy") on the model first'
            )

    def label_rows(self, X: Array, *features: Any, **options: Any) -> RowLabels:
        """Build the label space of the rows."""
        return label_rows(len(X), *features, **options)

    def dense_gram(self, K: Array, labels: RowLabels, dtype: Any, **options: Any) -> Gram:
        """Operator of a stored kernel matrix, which is overwritten if it is in float64."""
        return DenseGram(K.astype(np.float64, copy=False), labels, dtype, **options)

    def kernel_matrix(self, kernel: Kernel, X: Array) -> Array:
        """Evaluate the whole kernel matrix in float64."""
        return kernel_matrix(kernel, kernel.prepare(X))

    def streamed_gram(self, X: Array, kernel: Kernel, labels: RowLabels, **options: Any) -> Gram:
        """Operator of a kernel matrix that is not stored."""
        return StreamedGram(X, kernel, labels, **options)

    def project(self, kernel: Kernel, X: Array, support: Array, dual: Array) -> Array:
        """Return ``k(X, support) dual``, up to the kernel's constant."""
        if is_dask(support):
            from domainwise.backends.dask import project_in_memory

            return project_in_memory(kernel, X, support, dual)
        return cross_product(kernel, X, kernel.prepare(support), dual)

    def map_rows(self, model: Any, X: Array) -> Array:
        """Project rows with a fitted model."""
        return model._project(X)

    def on_host(self, X: Any) -> Any:
        """Return rows that can be indexed as an array."""
        return np.asarray(X)

    def copied(self, X: Array) -> Array:
        """Return a copy that later changes of the caller's X do not reach."""
        return np.array(X)

    def cast(self, values: Any, X: Array) -> Array:
        """Return values in the precision of X."""
        return np.asarray(values, dtype=X.dtype)

    def coefficients(self, dual: Any, X: Array) -> Any:
        """Return coefficients in the precision they are kept in."""
        return dual

    def small(self, values: Array, X: Array) -> Any:
        """Return a small fitted array where the others are."""
        return values

    def place(self, model: Any, X: Array) -> None:
        """Bring the fitted arrays of a model to where X is."""

    def memory_advice(self, X: Any) -> AbstractContextManager[None]:
        """Say what to change when memory runs out."""
        return nullcontext()


def backend_of(X: Any) -> Any:
    """Return the backend of X. Nothing is imported to find it: the owner of X has done so."""
    if is_tensor(X):
        from domainwise.backends.torch import TorchBackend

        return TorchBackend()
    if is_dask(X):
        from domainwise.backends.dask import DaskBackend

        return DaskBackend()
    return NumpyBackend()


def is_tensor(X: Any) -> bool:
    """Whether X is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, getattr(torch, "Tensor", ()))


def refuse_elsewhere(estimator: Any, X: Any, advice: str) -> None:
    """Refuse tensors and Dask collections, rather than copy them behind the back."""
    if is_tensor(X) or is_dask(X):
        raise TypeError(
            f"{type(estimator).__name__} takes NumPy arrays and data frames, got "
            f"{type(X).__module__}.{type(X).__name__}; {advice}"
        )


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection."""
    dask = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(X)


def _refuse_distant(labels: Any, name: str) -> None:
    """Labels on a GPU belong to rows on that GPU, and labels on Dask to rows on Dask."""
    if is_dask(labels):
        raise TypeError(
            f"{name} is a Dask collection but X is not: pass X as a Dask collection, too, or "
            f"{name}.compute()"
        )
    if is_tensor(labels) and labels.device.type != "cpu":
        raise ValueError(f"{name} is on {labels.device}, but X is not a tensor there")
