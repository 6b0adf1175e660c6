"""The quadratic ``A = c K^2 + K + delta I`` of a Gram matrix: ``A^-1 K V`` by shifted solves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from domainwise.arrays import Array
from domainwise.methods.components import norms
from domainwise.methods.contract import Gram, Solution, Thin

#: From ``4 c delta`` of this on the roots of A are too close to each other, or complex.
CLOSE_ROOTS = 0.99


@dataclass
class Inverse:
    """``Y = A^-1 K V`` and ``K Y``."""

    Y: Thin
    KY: Thin
    info: dict[str, Any] = field(default_factory=dict)


class Quadratic:
    """The positive definite matrix ``A = c K^2 + K + delta I``, known by what it does.

    Neither c nor delta is negative. Zeros are fine: K is inverted on its own range only.
    """

    def __init__(self, gram: Gram, c: float, delta: float) -> None:
        self.gram, self.c, self.delta = gram, c, delta
        self._rough: list[Callable[[Thin], Thin]] | None = None

    def image(self, X: Thin, KX: Thin, KKX: Thin) -> Thin:
        """Return ``A X``."""
        return self.c * KKX + KX + self.delta * X

    def inverse_of_image(self, V: Thin, KV: Thin) -> Inverse:
        """Return ``A^-1 K V``.

        With s and t the roots of ``c s^2 - s + delta``, A is ``c (K + s)(K + t)``, and partial
        fractions leave ``[(K + t)^-1 - (K + s)^-1] K V / (c (s - t))``.
        """
        gram, c, delta = self.gram, self.c, self.delta
        if c == 0 and delta == 0:
            return Inverse(V, KV)
        if 4 * c * delta >= CLOSE_ROOTS:
            return self._by_conjugate_gradients(KV)
        root = float(np.sqrt(1.0 - 4 * c * delta))
        small = 2 * delta / (1.0 + root)
        if c == 0:
            solution = gram.solve(V, small)
            Y, info = _image(gram, solution), solution.info
            KY = KV - delta * Y
        elif delta == 0:
            solution = gram.solve(V, 1 / c)
            return Inverse(solution.thin / c, _image(gram, solution) / c, dict(solution.info))
        else:
            large = (1.0 + root) / (2 * c)
            near, far = gram.solve_shifts(V, [small, large])
            info = near.info
            image, far_image = _image(gram, near), _image(gram, far)
            Y = (image - far_image) / root
            KY = (large * far_image - small * image) / root
        if (norms(gram, KY) < 1e-4 * norms(gram, KV)).any():
            KY = gram.product(Y)  # next to a small kernel the shift leaves nothing of a difference
        return Inverse(Y, KY, dict(info))

    def precondition(self, R: Thin) -> Thin:
        """Return roughly a multiple of ``A^-1 R``."""
        if self._rough is None:
            self._rough = [self.gram.preconditioner(shift) for shift in self._shifts()]
        for inverse in self._rough:
            R = inverse(R)
        return R

    def _shifts(self) -> list[float]:
        """Shifts whose product stands for A; that of complex roots is off by a factor below 2."""
        c, delta = self.c, self.delta
        if 4 * c * delta >= CLOSE_ROOTS:
            return [float(np.sqrt(delta / c))] * 2
        root = float(np.sqrt(1.0 - 4 * c * delta))
        small = 2 * delta / (1.0 + root)
        return [small, (1.0 + root) / (2 * c)] if c else [small]

    def _by_conjugate_gradients(self, V: Thin) -> Inverse:
        """Solve ``A Y = V``; preconditioned, A has a condition number below 2 or thereabouts."""
        gram, goal = self.gram, 1e-2 * self.gram.tol
        scale = norms(gram, V)
        scale = np.where(scale > 0, scale, 1.0)
        X, KX, R = 0.0 * V, 0.0 * V, V
        Z = self.precondition(R)
        P, rz = Z, _dots(gram, R, Z)
        history: list[float] = []
        while len(history) < gram.max_iter:
            KP = gram.product(P)
            AP = self.image(P, KP, gram.product(KP))
            step = np.diag(_ratio(rz, _dots(gram, P, AP)))
            X, KX = X + gram.combine(P, step), KX + gram.combine(KP, step)
            before, R = R, R - gram.combine(AP, step)
            history.append(float((norms(gram, R) / scale).max(initial=0.0)))
            stalled = len(history) > 8 and history[-1] > 0.5 * min(history[:-8])
            if history[-1] <= goal or stalled:
                break
            Z = self.precondition(R)
            # Polak-Ribiere, for a preconditioner that is rounded.
            after = _dots(gram, R, Z)
            turn = _ratio(after - _dots(gram, before, Z), rz)
            P, rz = Z + gram.combine(P, np.diag(turn)), after
        if history[-1] > gram.tol:
            warnings.warn(
                f"conjugate gradients stopped at a relative residual of {history[-1]:.1e} after "
                f"{len(history)} iterations (tol={gram.tol:g}): raise max_iter, tol, or the ridge",
                ConvergenceWarning,
                stacklevel=4,
            )
        info = {
            "linear_solver": "pcg on the quadratic",
            "n_iterations": len(history),
            "residual": history[-1],
        }
        return Inverse(X, KX, info)


def _image(gram: Gram, solution: Solution) -> Thin:
    return gram.product(solution.thin) if solution.image is None else solution.image


def _dots(gram: Gram, U: Thin, V: Thin) -> Array:
    return np.diagonal(gram.inner(U, V))


def _ratio(a: Array, b: Array) -> Array:
    return np.asarray(np.divide(a, b, out=np.zeros_like(a), where=b != 0))
