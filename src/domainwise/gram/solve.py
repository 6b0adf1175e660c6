"""Shifted systems ``(K + shift I) X = V`` for all right-hand sides at once (theory 8.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import cast, cholesky, column_norms, namespace
from domainwise.checks.warn import warn_caller
from domainwise.methods.contract import Solution

#: Inverses in float32 are tried for traces of K that leave room there, and for shifts above this
#: share of them,
SMALLEST_TRACE, LARGEST_TRACE, REFINABLE = 1e-20, 1e30, 1e-6
#: by so many products where the norm of K is below this share of the shift,
FAR, TERMS = 0.2, 3
#: refined at most so often,
REFINEMENTS = 6
#: and used if they reach this relative residual.
REFINED = 1e-12
#: A negative eigenvalue beyond this share of the largest is no rounding, in float32 either.
INDEFINITE = 1e-4


@dataclass
class PCGResult:
    """Solution X of :func:`conjugate_gradients`, K X, and the true relative residual."""

    X: Any
    KX: Any
    n_iterations: int
    residual: float
    converged: bool


def conjugate_gradients(
    product: Callable[[Any], Any],
    V: Any,
    shift: Any,
    precondition: Callable[[Any], Any],
    *,
    tol: float,
    max_iter: int,
    monitor: Callable[[int, float], None] | None = None,
    accurate_product: Callable[[Any], Any] | None = None,
) -> PCGResult:
    """Solve ``(K + shift I) X = V`` column by column, sharing each product with K.

    Written with operators that NumPy arrays and torch tensors have in common. The recursion's
    residual drifts from the true one, so the true one is computed at the end, and the iteration
    goes on from there while it is above ``tol`` and still falls.

    ``shift`` is one for all columns or one each; ``precondition`` is a symmetric positive definite
    approximation of the inverse; ``max_iter`` counts the products of the checks, too. ``monitor``
    is called with the iteration and the largest relative residual. ``accurate_product`` is for the
    true residual, where ``product`` is quick and rough.
    """
    target = column_norms(V)
    scale = target + (target == 0)
    X = V * 0
    R = V
    done, true = 0, float("inf")
    while True:
        Z = precondition(R)
        P, rz = Z, (R * Z).sum(0)
        best = largest_residual(R, scale)
        while done < max_iter and best > 0.5 * tol:
            KP = product(P) + shift * P
            done += 1
            curvature = (P * KP).sum(0)
            step = rz / (curvature + (curvature == 0))
            X = X + step * P
            R_old, R = R, R - step * KP
            residual = largest_residual(R, scale)
            if monitor is not None:
                monitor(done, residual)
            if residual >= best and residual <= tol:
                break
            best = min(best, residual)
            Z = precondition(R)
            # Polak-Ribiere: stays a descent when the preconditioner is rounded to float32.
            rz_new = (R * Z).sum(0)
            turn = (rz_new - (R_old * Z).sum(0)) / (rz + (rz == 0))
            P, rz = Z + turn * P, rz_new
        KX = (accurate_product or product)(X)
        R = V - KX - shift * X
        last, true = true, largest_residual(R, scale)
        if true <= tol or true > 0.5 * last or done + 1 >= max_iter:
            return PCGResult(X, KX, done, true, true <= tol)
        done += 1


def cholesky_inverse(K: Any, shift: float) -> Callable[[Any], Any] | None:
    """Return ``(K + shift I)^-1`` on centred V for a centred K, or None if Cholesky breaks.

    The constant vector, which K maps to zero, is lifted out of the way first: V has no part in it.
    """
    n = len(K)
    A = K + max(float(namespace(K).trace(K)), shift) / n
    A.reshape(-1)[:: n + 1] += shift
    inverse = cholesky(A)
    if inverse is None:
        return None

    def solve(V: Any) -> Any:
        X = inverse(V)
        return X - X.mean(0)

    return solve


class RefinedCholesky:
    """Solves ``(K + shift I) X = V`` for several shifts by inverses in float32.

    A factor costs half as much there, and a few steps of refinement with K in float64 bring back
    the digits, unless the system is too close to singular. K is centred and semi-definite.
    """

    def __init__(self, K: Any) -> None:
        self.K, self.trace = K, float(namespace(K).trace(K))
        self.fits = SMALLEST_TRACE < self.trace < LARGEST_TRACE
        self.rough = cast(K, namespace(K).float32) if self.fits else K
        self._norm = float(namespace(K).linalg.norm(self.rough))
        self._inverses: dict[float, Callable[[Any], Any] | None] = {}

    def inverse(self, shift: float) -> Callable[[Any], Any] | None:
        """Return the inverse on centred V to single precision, or None if that is not enough."""
        if not self.fits or not shift > REFINABLE * self.trace:
            return None
        if shift not in self._inverses:
            far = self._norm < FAR * shift
            find = self._by_products if far else partial(cholesky_inverse, self.rough)
            self._inverses[shift] = find(shift)
        inverse = self._inverses[shift]
        if inverse is None:
            return None

        def scaled(V: Any) -> Any:
            scale = column_norms(V)
            scale = scale + (scale == 0)
            X = inverse(cast(V / scale, self.rough.dtype)) * scale
            return X - X.mean(0)

        return scaled

    def _by_products(self, shift: float) -> Callable[[Any], Any]:
        """Chebyshev's iteration, for eigenvalues between the shift and that plus the norm."""
        middle = shift + self._norm / 2
        share = 1.0 - shift / middle

        def inverse(V: Any) -> Any:
            X = step = V / middle
            last = share
            for _ in range(TERMS):
                part = 2.0 - share * last
                R = V - (X.T @ self.rough).T - shift * X
                step = share * last / part * step + 2.0 / (middle * part) * R
                X, last = X + step, share / part
            return X

        return inverse

    def solve(self, V: Array, shift: float) -> Solution | None:
        """Return the solution, or None where refinement does not get there."""
        inverse = self.inverse(shift)
        if inverse is None:
            return None
        scale = column_norms(V)
        scale = scale + (scale == 0)
        X, R = np.zeros_like(V), V
        for _ in range(REFINEMENTS):
            X = X + inverse(R)
            KX = (X.T @ self.K).T
            R = V - KX - shift * X
            residual = largest_residual(R, scale)
            if residual <= REFINED:
                info = {"linear_solver": "cholesky, refined", "residual": residual}
                return Solution(X, KX - KX.mean(axis=0), info)
        return None


def spectral_solve(K: Any, V: Any, shift: float) -> tuple[Any, int]:
    """Solve with a semi-definite K by its eigenvalues; shift 0 gives the pseudo-inverse.

    Eigenvalues at or below N eps of the largest count as zero and, at shift 0, are left out.
    Returns the solution and the rank that was kept.
    """
    xp = namespace(K)
    d, U = xp.linalg.eigh(K)
    if float(d[0]) < -INDEFINITE * float(d[-1]) - shift:
        warn_caller(
            "the kernel is not positive semi-definite (its centred matrix has the eigenvalues "
            f"{d[0]:.1e} and {d[-1]:.1e}): new rows are not projected to the training rows' scale"
        )
    keep = d > len(d) * np.finfo(float).eps * max(float(d[-1]), 0.0)
    shifted = xp.where(keep, d, 0.0) + shift
    inverse = xp.where(shifted > 0, 1.0 / xp.where(shifted > 0, shifted, 1.0), 0.0)
    X = U @ (inverse[:, None] * (U.T @ V))
    return X - X.mean(0), int(keep.sum())


def largest_residual(R: Any, scale: Any) -> float:
    """Largest length of a column of R over its scale."""
    relative = column_norms(R) / scale
    return float(relative.max()) if len(relative) else 0.0
