"""Small linear algebra that is written once for NumPy arrays and for tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from domainwise.arrays import Array


def placed(values: Array, like: Any) -> Any:
    """Return a NumPy array where another one is: itself, or a tensor on that device."""
    if isinstance(like, np.ndarray):
        return values
    import torch

    return torch.from_numpy(np.array(values)).to(like.device)


def side_by_side(parts: Sequence[Any]) -> Any:
    """Concatenate along the last axis."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=-1)
    import torch

    return torch.cat(list(parts), -1)


def shifted_solve(S: Any, shift: float, B: Any) -> Any:
    """Return ``(S + shift I)^-1 B`` for a positive semi-definite S, up to its rounding."""
    if isinstance(S, np.ndarray):
        A = S.copy()
        A.flat[:: len(A) + 1] += shift
        try:
            # Transposed, LAPACK takes it as it is.
            factor = cho_factor(A.T, lower=True, overwrite_a=True, check_finite=False)
            return cho_solve(factor, B, check_finite=False)
        except LinAlgError:
            values, U = np.linalg.eigh(S)
            return U @ ((U.T @ B) / (values.clip(0.0) + shift)[:, None])
    import torch

    A = S.clone()
    A.diagonal().add_(shift)
    L, failed = torch.linalg.cholesky_ex(A)
    if not bool(failed):
        return torch.cholesky_solve(B, L)
    values, U = torch.linalg.eigh(S)
    return U @ ((U.T @ B) / (values.clamp(min=0.0) + shift)[:, None])
