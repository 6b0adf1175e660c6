"""Small linear algebra that is written once for NumPy arrays and for tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import cholesky, namespace


def placed(values: Array, like: Any) -> Any:
    """Return a NumPy array where another one is: itself, or a tensor on that device."""
    if isinstance(like, np.ndarray):
        return values
    import torch

    return torch.from_numpy(np.array(values)).to(like.device)


def side_by_side(parts: Sequence[Any]) -> Any:
    """Concatenate along the last axis."""
    return namespace(parts[0]).concatenate(list(parts), axis=-1)


def shifted_solve(S: Any, shift: float, B: Any) -> Any:
    """Return ``(S + shift I)^-1 B`` for a positive semi-definite S, up to its rounding."""
    A, diagonal = S + 0.0, np.arange(len(S))
    A[diagonal, diagonal] += shift
    inverse = cholesky(A)
    if inverse is not None:
        return inverse(B)
    values, U = namespace(S).linalg.eigh(S)
    return U @ ((U.T @ B) / (values.clip(min=0.0) + shift)[:, None])
