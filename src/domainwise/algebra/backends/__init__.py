"""One interface for arrays, tensors and Dask collections: computations run where X is stored."""

from typing import Any

from domainwise.algebra.backends.base import Backend
from domainwise.base.arrays import is_dask, is_tensor

__all__ = ["Backend", "backend_of", "refuse_dask", "refuse_tensors_and_dask"]


def backend_of(X: Any) -> Backend:
    """Return the backend for the type of X."""
    if is_tensor(X):
        from domainwise.algebra.backends.torch import TorchBackend

        return TorchBackend()
    if is_dask(X):
        from domainwise.algebra.backends.dask import DaskBackend

        return DaskBackend()
    return Backend()


def refuse_dask(estimator: Any, X: Any, advice: str) -> None:
    """Raise TypeError for Dask collections."""
    if is_dask(X):
        raise TypeError(
            f"{type(estimator).__name__} needs all rows in memory; got a Dask {type(X).__name__}. "
            f"{advice}, or pass X.compute()."
        )


def refuse_tensors_and_dask(estimator: Any, X: Any, advice: str) -> None:
    """Raise TypeError for tensors and Dask collections, which would be copied into memory."""
    if is_tensor(X) or is_dask(X):
        raise TypeError(
            f"{type(estimator).__name__} takes NumPy arrays and data frames; got "
            f"{type(X).__module__}.{type(X).__name__}. {advice}."
        )
