"""The result type, and the checks and small steps that all reference algorithms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from domainwise.checks import warn_caller

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceResult:
    """Solution of one of the reference algorithms, a column for each component."""

    eigenvalues: Matrix  #: real parts, largest first
    coefficients: Matrix  #: the paper's B: a point projects to B' times its centred kernel values
    projected: Matrix  #: training points, the paper's K_x tilde, transposed
    projected_new: Matrix | None = None  #: new points where ``K_z`` was given


def leading(
    gammas: NDArray[Any], vectors: NDArray[Any], n_components: int
) -> tuple[Matrix, Matrix]:
    """Largest real parts first; a warning where the chosen ones are truly complex."""
    order = np.argsort(-gammas.real, kind="stable")[:n_components]
    chosen = gammas[order]
    imaginary = np.abs(np.imag(chosen)) > 1e-8 * np.abs(chosen)
    if imaginary.any():
        warn_caller(
            f"{imaginary.sum()} of the {len(chosen)} leading eigenvalues are complex, by rounding;"
            " only real parts are used",
            RuntimeWarning,
        )
    return chosen.real, vectors[:, order].real


def unit_variance(projected: Matrix) -> Matrix:
    """Factors that give centred columns variance 1; 1 where a column is zero up to rounding."""
    deviation = np.sqrt(np.mean(projected**2, axis=0))
    vanishing = deviation <= 1e-12 * deviation.max()
    factors: Matrix = 1.0 / np.where(vanishing, 1.0, deviation)
    return factors


def centre(K: Matrix) -> Matrix:
    """Subtract the means of rows and columns."""
    means = K.mean(axis=0)
    centred: Matrix = K - means - means[:, None] + means.mean()
    return centred


def matrix(values: ArrayLike, name: str) -> Matrix:
    """Check a matrix of finite numbers."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be a non-empty matrix, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite values")
    return array


def square(values: ArrayLike, name: str, size: int | None = None) -> Matrix:
    """Check a square matrix."""
    array = matrix(values, name)
    expected = len(array) if size is None else size
    if array.shape != (expected, expected):
        raise ValueError(
            f"{name} must have shape ({expected}, {expected}), got {array.shape[0]} x"
            f" {array.shape[1]}"
        )
    if not np.allclose(array, array.T, rtol=1e-8, atol=1e-10 * np.abs(array).max()):
        raise ValueError(f"{name} must be symmetric")
    return (array + array.T) / 2


def positive(value: float, name: str, *, zero: bool = False) -> float:
    """Check a regulariser, or a weight, which may be zero."""
    if not np.isfinite(value) or value < 0 or (value == 0 and not zero):
        kind = "number of at least 0" if zero else "positive number"
        raise ValueError(f"{name} must be a {kind}, got {value!r}")
    return float(value)


def check_components(n_components: int, most: int, what: str) -> None:
    """Check n_components."""
    if not 1 <= n_components <= most:
        raise ValueError(f"n_components must be between 1 and {most} ({what}), got {n_components}")
