"""Labels as the measures in ``metrics`` take them: 1-D, one for each row, none missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from domainwise.checks.inputs import is_missing, kind_of_label, plain_array, sortable


def labels(values: ArrayLike, name: str) -> NDArray[Any]:
    """1-D array of labels without missing entries."""
    array = plain_array(values, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, got shape {array.shape}")
    if len(array) == 0:
        raise ValueError(f"{name} is empty: at least one row is needed")
    if array.dtype.kind in "fc":
        missing = ~np.isfinite(array)
    else:
        objects = array if array.dtype.kind == "O" else ()
        missing = np.array([is_missing(value) for value in objects], dtype=bool)
    if missing.any():
        raise ValueError(
            f"{name} has {missing.sum()} missing or infinite entries, the first in row"
            f" {int(np.argmax(missing))}; every row needs a value"
        )
    return sortable(array, name)


def encode(values: ArrayLike, name: str) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Codes 0..G-1 of 1-D labels, and the sorted labels."""
    groups, codes = np.unique(labels(values, name), return_inverse=True)
    return codes, groups


def same_length(a: NDArray[Any], a_name: str, b: NDArray[Any], b_name: str) -> None:
    """Refuse arrays of different lengths, by their names."""
    if a.ndim == 0 or b.ndim == 0 or len(a) != len(b):
        sizes = [array.shape[0] if array.ndim else "no" for array in (a, b)]
        raise ValueError(f"{a_name} has {sizes[0]} entries but {b_name} has {sizes[1]}")


def same_kind(a: NDArray[Any], a_name: str, b: NDArray[Any], b_name: str) -> None:
    """Refuse labels of which none can be equal: text beside numbers."""
    kinds = [kind_of_label(array[0].item()) for array in (a, b)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{a_name} holds labels of type {kinds[0]}, but {b_name} of {kinds[1]}")
