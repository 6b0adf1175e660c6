"""Array types for annotations, and functions that recognize tensors and Dask collections."""

import sys
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas

Array = NDArray[Any]
Frame: TypeAlias = "pandas.DataFrame"
#: Types of estimator arguments. Tensors, data frames and Dask collections count as ArrayLike.
MaybeArray = ArrayLike | None
Seed = int | RandomState | None
KernelLike = str | Callable[..., ArrayLike]
ClassWeight = dict[Any, float] | str | None
Scoring = str | Callable[..., float] | None
Decision = str | float
Label = Hashable  #: label of a class or a domain


class Estimator(Protocol):
    """An estimator with scikit-learn's interface."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""

    def fit(self, *args: Any, **params: Any) -> Any:
        """Fit the estimator."""


class Splitter(Protocol):
    """A splitter with scikit-learn's interface."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterable[Any]:
        """Yield the indices of training rows and test rows for each split."""


CrossValidator = int | Splitter | Iterable[Any] | None

__all__ = ["Array", "ArrayLike", "is_dask", "is_tensor"]


def is_tensor(X: Any) -> bool:
    """Return whether X is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, getattr(torch, "Tensor", ()))


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    dask = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(X)
