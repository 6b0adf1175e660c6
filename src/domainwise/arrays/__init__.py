"""Arrays: the type that annotations name, and which kinds there are."""

import sys
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

__all__ = ["Array", "is_dask", "is_tensor"]


def is_tensor(X: Any) -> bool:
    """Whether X is a torch tensor. Nothing is imported to tell: the owner of X has done so."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, getattr(torch, "Tensor", ()))


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection."""
    dask = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(X)
