"""Arrays: the type that annotations name."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

__all__ = ["Array"]
