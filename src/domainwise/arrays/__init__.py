"""Arrays: the type that annotations name, and which kinds there are."""

import sys
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas

Array = NDArray[Any]
Frame: TypeAlias = "pandas.DataFrame"
#: Arguments of estimators. Tensors, data frames and Dask collections count as ArrayLike.
MaybeArray = ArrayLike | None
Seed = int | RandomState | None
KernelLike = str | Callable[..., ArrayLike]
ClassWeight = dict[Any, float] | str | None
Scoring = str | Callable[..., float] | None
Label = Hashable  #: of a class or a domain


class Estimator(Protocol):
    """What has arguments and can be fitted, as scikit-learn's estimators are."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return arguments by name."""

    def fit(self, *rows: Any, **more: Any) -> Any:
        """Fit to rows."""


class Splitter(Protocol):
    """What leaves rows out, as scikit-learn's splitters do."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterable[Any]:
        """Yield places of rows to train on, and of those to test."""


CrossValidator = int | Splitter | Iterable[Any] | None

__all__ = ["Array", "ArrayLike", "is_dask", "is_tensor"]


def is_tensor(X: Any) -> bool:
    """Whether X is a torch tensor. Nothing is imported to tell: the owner of X has done so."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, getattr(torch, "Tensor", ()))


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection."""
    dask = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(X)
