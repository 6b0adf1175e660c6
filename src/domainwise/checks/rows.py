"""Checks of X: what is no table of numbers is refused in words, not turned into one."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

#: How types of columns begin that hold no plain numbers, and what is to be done with them.
_NO_NUMBERS = {
    ("date", "time", "duration", "period"): "dates or times: make numbers of them first",
    ("sparse",): "sparse columns: call X.sparse.to_dense()",
}


def validate_rows(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Check X, or X and y, as ``validate_data`` does, and that X is rows, of ``numbers``."""
    refuse_no_rows(X, numbers=options.pop("numbers", True))
    try:
        return validate_data(estimator, X, y, **options)
    except (TypeError, ValueError) as error:
        # What NumPy says of cells that are no numbers.
        if str(error).startswith(("could not convert", "float() argument", "setting an array")):
            raise type(error)(f"X must hold numbers, one in each cell: {error}") from error
        raise


def refuse_no_rows(X: Any, *, numbers: bool = False) -> None:
    """Refuse what has no rows and columns, or would lose its meaning without a word."""
    sequence = hasattr(X, "__len__") and not isinstance(X, str | bytes | dict | set | frozenset)
    if not sequence and not hasattr(X, "__array__") and not hasattr(X, "shape"):
        raise TypeError(f"X must be an array or a data frame of rows, got {type(X).__name__}")
    if hasattr(X, "iloc") and X.ndim != 2:
        raise ValueError("X must be 2-dimensional, got a Series: X.to_frame() is a column")
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError("X has masked values, which would count: call X.filled(numpy.nan)")
    if isinstance(X, np.ndarray) and X.dtype.names:
        raise TypeError("X is a structured array: make a data frame of it")
    for begins, what in _NO_NUMBERS.items() if numbers else ():
        held = [name for name, dtype in _columns(X) if dtype.lower().startswith(begins)]
        if held:
            raise TypeError(f"X holds {what} ({', '.join(map(str, held[:5]))})")


def _columns(X: Any) -> list[tuple[Any, str]]:
    """Name and type of columns of any kind of data frame, or of an array."""
    if hasattr(getattr(X, "schema", None), "types"):  # of Arrow
        return list(zip(X.schema.names, map(str, X.schema.types), strict=True))
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        return list(zip(X.columns, map(str, X.dtypes), strict=True))
    return [("dtype", str(X.dtype))] if isinstance(X, np.ndarray) else []
