"""Kernels of tensors, on any device: what :mod:`domainwise.kernels.functions` does for arrays."""

from __future__ import annotations

from dataclasses import replace
from math import comb, sqrt
from typing import Any

import numpy as np
import torch

from domainwise.kernels.functions import (
    MEDIAN_ROWS,
    Kernel,
    Prepared,
    make_kernel,
    products_suffice,
)

Tensor = Any


def resolve_kernel(kernel: Any, X: Tensor, *, gamma: float | str, **arguments: Any) -> Kernel:
    """Resolve an estimator's kernel arguments on a tensor, as ``make_kernel`` does on an array."""
    if isinstance(gamma, str) and isinstance(kernel, str) and kernel != "precomputed":
        gamma = resolve_gamma(gamma, kernel, X)
    # A single row stands for X: everything that depends on all rows is settled here.
    row = np.zeros((1, X.shape[1]), dtype=numpy_dtype(X.dtype))
    resolved = make_kernel(kernel, row, gamma=gamma, **arguments)
    return centred_on(resolved, X)


def resolve_gamma(gamma: str, kernel: str, X: Tensor) -> float:
    """Apply the gamma rules of :func:`domainwise.kernels.functions.resolve_gamma` on X's device."""
    n, p = X.shape
    if gamma == "scale":
        variance = float(X.double().var(correction=0))
        return 1.0 / (p * variance) if variance > 0 else 1.0
    if kernel not in ("rbf", "laplacian"):
        return 1.0 / p
    if n > MEDIAN_ROWS:
        chosen = np.linspace(0, n - 1, MEDIAN_ROWS).astype(int)
        X = X[torch.from_numpy(chosen).to(X.device)]
    distances = torch.nn.functional.pdist(X.double(), p=2.0 if kernel == "rbf" else 1.0)
    distances = distances[distances > 0].sort().values
    count = len(distances)
    if not count:
        raise ValueError(
            f"gamma={gamma!r} needs rows that differ: all {len(X)} rows looked at are the same; "
            "give gamma as a number"
        )
    median = float((distances[(count - 1) // 2] + distances[count // 2]) / 2)
    return 1.0 / (2.0 * median**2) if kernel == "rbf" else 1.0 / median


def centred_on(kernel: Kernel, X: Tensor) -> Kernel:
    """Return the kernel with the mean of X as its origin, where that gains digits."""
    if kernel.name not in ("rbf", "linear"):
        return kernel
    origin = X.mean(0, dtype=torch.float64).to(X.dtype)
    on_host = origin.cpu().numpy()
    if kernel.name == "linear":
        return replace(kernel, origin=on_host)
    reach = kernel.gamma * float((X - origin).square().sum(1).max())
    if products_suffice(reach, torch.finfo(X.dtype).eps):
        return replace(kernel, origin=on_host, by_differences=False)
    return replace(kernel, origin=None, by_differences=True)


def from_origin(kernel: Kernel, X: Tensor) -> Tensor:
    """Rows about the kernel's origin."""
    if kernel.origin is None:
        return X
    return X - torch.as_tensor(kernel.origin).to(device=X.device, dtype=X.dtype)


def prepare(kernel: Kernel, X: Tensor) -> Prepared:
    """Bring rows into the form that :func:`block` multiplies."""
    X = from_origin(kernel, X)
    if kernel.name == "rbf" and not kernel.by_differences:
        U = X * sqrt(2.0 * kernel.gamma)
        half = -0.5 * U.square().sum(1, keepdim=True)
        one = torch.ones_like(half)
        return Prepared(torch.cat([U, half, one], 1), torch.cat([U, one, half], 1))
    if kernel.name == "poly":
        return Prepared(X * kernel.gamma, X)
    if kernel.name == "cosine":
        for order in (torch.inf, 2):  # the largest entry first, so that squares stay within range
            sizes = torch.linalg.vector_norm(X, order, dim=1, keepdim=True)
            X = X / torch.where(sizes > 0, sizes, 1.0)
    return Prepared(X, X)


def block(kernel: Kernel, left: Tensor, right: Tensor) -> Tensor:
    """Evaluate ``k - constant`` between prepared rows."""
    if kernel.name == "callable":
        return _call(kernel, left, right)
    if kernel.name == "laplacian":
        return torch.cdist(left, right, p=1.0).mul_(-kernel.gamma).expm1_()
    if kernel.by_differences:
        exact = "donot_use_mm_for_euclid_dist"
        distances = torch.cdist(left, right, p=2.0, compute_mode=exact)
        return distances.square_().mul_(-kernel.gamma).expm1_()
    K = left @ right.T
    if kernel.name == "rbf":
        return K.clamp_(max=0.0).expm1_()
    return _polynomial(kernel, K) if kernel.name == "poly" else K


def matrix(kernel: Kernel, X: Tensor) -> Tensor:
    """Evaluate the kernel itself, constant included, between the rows of X."""
    rows = prepare(kernel, X)
    K = block(kernel, rows.left, rows.right)
    if kernel.name in ("rbf", "laplacian"):
        K.fill_diagonal_(0.0)
    K = (K + K.T) / 2
    return K + kernel.constant if kernel.constant else K


def _polynomial(kernel: Kernel, T: Tensor) -> Tensor:
    """(T + coef0)^degree - coef0^degree by Horner's rule."""
    if not float(kernel.degree).is_integer():
        return (T + kernel.coef0) ** kernel.degree
    d, c = int(kernel.degree), float(kernel.coef0)
    total = torch.ones_like(T)
    for power in range(d - 1, 0, -1):
        total.mul_(T).add_(comb(d, power) * c ** (d - power))
    return total.mul_(T) if d > 0 else torch.zeros_like(T)


def _call(kernel: Kernel, X: Tensor, Y: Tensor) -> Tensor:
    assert kernel.function is not None
    K = torch.as_tensor(kernel.function(X, Y, **kernel.params))
    if tuple(K.shape) != (len(X), len(Y)):
        raise ValueError(
            f"the callable kernel returned shape {tuple(K.shape)} for {len(X)} and {len(Y)} rows; "
            f"expected ({len(X)}, {len(Y)})"
        )
    if K.device != X.device:
        raise ValueError(
            f"the callable kernel returned values on {K.device} for rows on {X.device}"
        )
    if not bool(torch.isfinite(K).all()):
        raise ValueError("the callable kernel returned NaN or infinite values")
    return K.detach().to(X.dtype)


def numpy_dtype(dtype: Any) -> Any:
    """Return the NumPy dtype of a torch float dtype."""
    return np.float64 if dtype == torch.float64 else np.float32
