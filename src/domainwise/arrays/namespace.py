"""Functions that work on NumPy arrays and torch tensors.

Most functions have the same name and meaning in both: ``namespace(X).expm1``. Those that differ,
and that kernels and operators need, are defined here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.spatial.distance import cdist, pdist

from domainwise.arrays import Array, is_tensor

#: Up to this many features, a loop over features is faster on a GPU than torch's own L1 distances,
#: which use a block of threads for each pair of rows.
FEW_FEATURES = 64


def namespace(X: Any) -> Any:
    """Return the module whose functions work on X."""
    return sys.modules["torch"] if is_tensor(X) else np


def cast(X: Any, dtype: Any) -> Any:
    """Return X in a precision, X itself where it has that already."""
    return X.to(dtype) if is_tensor(X) else X.astype(dtype, copy=False)


def to_host(X: Any) -> Array:
    """Return an array of what may be a tensor on a device."""
    return np.asarray(X.cpu().numpy() if is_tensor(X) else X)


def beside(values: Any, X: Any) -> Any:
    """Return an array where X is, in the precision of X."""
    if is_tensor(X):
        return namespace(X).as_tensor(values).to(device=X.device, dtype=X.dtype)
    return cast(np.asarray(values), X.dtype)


def placed(values: Array, like: Any) -> Any:
    """Return a NumPy array where another one is: itself, or a tensor on that device."""
    if isinstance(like, np.ndarray):
        return values
    import torch

    return torch.from_numpy(np.array(values)).to(like.device)


def on_device(A: Array, device: Any) -> Any:
    """Return a small float64 matrix as a tensor on a device, or as it is where that is None."""
    if device is None:
        return A
    return sys.modules["torch"].from_numpy(np.array(A, dtype=np.float64)).to(device)


def precision_name(X: Any) -> str:
    """Return ``"float32"`` or ``"float64"``."""
    return str(X.dtype).removeprefix("torch.")


def squared_norms(X: Any) -> Any:
    """Squared length of each row."""
    # torch.einsum would follow the program's choice of TF32.
    return X.square().sum(1) if is_tensor(X) else np.einsum("ij,ij->i", X, X)


def column_norms(V: Any) -> Any:
    """Length of each column."""
    return (V * V).sum(0) ** 0.5


def cholesky(A: Any) -> Callable[[Any], Any] | None:
    """Return ``A^-1`` as a function, or None if A is not positive definite. A is overwritten."""
    if is_tensor(A):
        torch = namespace(A)
        factor, failed = torch.linalg.cholesky_ex(A)
        return None if int(failed) else lambda V: torch.cholesky_solve(V, factor)
    try:
        # The transpose of the symmetric A has LAPACK's order: nothing is copied.
        factored = cho_factor(A.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return lambda V: cho_solve(factored, V, check_finite=False)


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


def cross_distances(X: Any, Y: Any, *, l1: bool) -> Any:
    """L1 or squared Euclidean distances between the rows of X and Y, from their differences."""
    if not is_tensor(X):
        return cdist(X, Y, "cityblock" if l1 else "sqeuclidean")
    if l1 and X.device.type == "cuda" and X.shape[1] <= FEW_FEATURES:
        total = X.new_zeros((len(X), len(Y)))
        apart = namespace(X).empty_like(total)
        for j in range(X.shape[1]):
            namespace(X).sub(X[:, j, None], Y[None, :, j], out=apart)
            total.add_(apart.abs_())
        return total
    if l1:
        return namespace(X).cdist(X, Y, p=1.0)
    exact = "donot_use_mm_for_euclid_dist"
    return namespace(X).cdist(X, Y, p=2.0, compute_mode=exact).square_()


def pair_distances(X: Any, *, l1: bool) -> Any:
    """L1 or Euclidean distances between all pairs of rows of X."""
    if is_tensor(X):
        return namespace(X).nn.functional.pdist(X, p=1.0 if l1 else 2.0)
    return pdist(X, "cityblock" if l1 else "euclidean")


def positive_median(values: Any) -> float | None:
    """Median of the positive ones among values of at least 0; None without any.

    An array is reordered.
    """
    zeros = len(values) - int((values > 0).sum())
    if zeros == len(values):
        return None
    low, high = (zeros + len(values) - 1) // 2, (zeros + len(values)) // 2
    if is_tensor(values):
        values = values.sort().values
    else:
        values.partition((low, high))
    return float(values[low] + values[high]) / 2
