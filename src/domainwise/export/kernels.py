"""Kernel functions in a graph, evaluated as :mod:`domainwise.kernels` does."""

from __future__ import annotations

from math import comb, pi, sqrt
from typing import Any

import numpy as np

from domainwise.export.graph import Tensor
from domainwise.kernels.fourier import Basis, FourierMap
from domainwise.kernels.functions import Kernel


def kernel_values(kernel: Basis, X: Tensor, rows: Any) -> Tensor:
    """Evaluate ``k - constant`` between X and rows, of shape (n, m)."""
    if kernel.name == "precomputed":
        return X
    if isinstance(kernel, FourierMap):
        angles = X @ rows[:, :-1].T + (rows[:, -1] + pi / 2)
        return angles.op("Sin") * np.full(len(rows), sqrt(2.0 / len(rows)))
    if kernel.function is not None:
        raise ValueError(f"to_onnx cannot convert a Python function as kernel: {kernel.function}")
    rows = np.asarray(rows, dtype=np.float64)
    if kernel.name == "laplacian" or kernel.by_differences:
        return expm1(X.distances(rows, l1=kernel.name == "laplacian") * -kernel.gamma)
    # Scales are in the rows, not beside a product: onnxruntime would fuse them in float32.
    right, gamma = kernel.prepare(rows).right, kernel.gamma
    X = X if kernel.origin is None else X - np.asarray(kernel.origin, dtype=np.float64)
    if kernel.name == "rbf":
        # The last two of the prepared columns are for the norms.
        products = X @ (sqrt(2.0 * gamma) * right[:, :-2].T)
        return expm1((products + X.over("SumSquare") * -gamma + right[:, -1]).op("Min", 0.0))
    if kernel.name == "poly":
        return _polynomial(kernel, X @ (gamma * right.T))
    if kernel.name == "cosine":
        X = _divided(X, X.op("Abs").over("Max"))
        X = _divided(X, X.over("SumSquare").op("Sqrt"))
    return X @ right.T


def expm1(x: Tensor) -> Tensor:
    """``exp(x) - 1`` with all digits for small x: ONNX has no function for it."""
    return (x * 0.5).op("Tanh") * (x.op("Exp") + 1.0)


def _divided(X: Tensor, sizes: Tensor) -> Tensor:
    return X / sizes.where(sizes.op("Equal", 0.0), 1.0)


def _polynomial(kernel: Kernel, T: Tensor) -> Tensor:
    """(T + coef0)^degree - coef0^degree, by Horner's rule; see :class:`Kernel`."""
    c, degree = float(kernel.coef0), float(kernel.degree)
    if not degree.is_integer():
        return (T + c).op("Pow", degree)
    total = T * 0.0 + float(degree > 0)
    for power in range(int(degree) - 1, 0, -1):
        total = total * T + comb(int(degree), power) * c ** (degree - power)
    return total * T
