"""The quadratic ``A = c K^2 + K + delta I`` of a Gram matrix: ``A^-1 K V`` by shifted solves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from domainwise.arrays import Array
from domainwise.methods.components import norms, warn_stopped
from domainwise.methods.contract import Gram, Matrix, Solution

#: From ``4 c delta`` of this on the roots of A are too close to each other, or complex.
CLOSE_ROOTS = 0.99
#: Relative residual to which rough inverses are refined.
REFINED = 1e-12


class Quadratic:
    """The positive definite matrix ``A = c K^2 + K + delta I``, known by its products.

    Neither c nor delta is negative. Both may be 0: K is inverted on its own range only.
    """

    def __init__(self, gram: Gram, c: float, delta: float) -> None:
        self.gram, self.c, self.delta = gram, c, delta
        self._rough: list[Callable[[Matrix], Matrix]] | None = None

    def image(self, X: Matrix, KX: Matrix, KKX: Matrix) -> Matrix:
        """Return ``A X``."""
        return self.c * KKX + KX + self.delta * X

    def inverse_of_image(self, V: Matrix, KV: Matrix) -> Solution:
        """Return ``A^-1 K V`` and its image, roughly if the operator has rough inverses.

        With s and t the roots of ``c s^2 - s + delta``, A is ``c (K + s)(K + t)``, and partial
        fractions leave ``[(K + t)^-1 - (K + s)^-1] K V / (c (s - t))``.
        """
        gram, c, delta = self.gram, self.c, self.delta
        if c == 0 and delta == 0:
            return Solution(V, KV)
        if 4 * c * delta >= CLOSE_ROOTS:
            return self.by_conjugate_gradients(KV)
        shifts = self._shifts()
        small, large = shifts[0], shifts[-1]
        root = float(np.sqrt(1.0 - 4 * c * delta))
        if c == 0:
            solution = gram.solve(V, small)
            Y, info = solution.image, solution.info
            KY = KV - delta * Y
        elif delta == 0:
            solution = gram.solve(V, 1 / c)
            return Solution(solution.X / c, solution.image / c, dict(solution.info))
        elif (inverses := gram.rough_inverses(shifts)) is not None:
            self._rough = inverses
            Y = (V - small * inverses[0](V) - inverses[1](KV)) / root
            return Solution(Y, gram.product(Y), rough=True)
        else:
            near, far = gram.solve_shifts(V, shifts)
            info = near.info
            Y = (near.image - far.image) / root
            KY = (large * far.image - small * near.image) / root
        if (norms(gram, KY) < 1e-4 * norms(gram, KV)).any():
            KY = gram.product(Y)  # the difference cancels where the kernel is small
        return Solution(Y, KY, dict(info))

    def form(self, inverse: Solution, KV: Matrix) -> Array:
        """Return ``V'K A^-1 K V``; an error E of a rough inverse changes it by ``E'A E`` only."""
        inner, Y, KY = self.gram.inner, inverse.X, inverse.image
        S = inner(KV, Y)
        if not inverse.rough:
            return S
        return S + S.T - self.c * inner(KY, KY) - inner(Y, KY) - self.delta * inner(Y, Y)

    def precondition(self, R: Matrix) -> Matrix:
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

    def by_conjugate_gradients(self, V: Matrix, start: Solution | None = None) -> Solution:
        """Solve ``A Y = V``, if from a rough Y to rounding; preconditioned, A is nearly I."""
        gram, goal = self.gram, 1e-2 * self.gram.tol if start is None else REFINED
        scale = norms(gram, V)
        scale = np.where(scale > 0, scale, 1.0)
        X, KX, R = 0.0 * V, 0.0 * V, V
        if start is not None:
            X, KX = start.X, start.image
            R = V - self.image(X, KX, gram.product(KX))
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
            warn_stopped(history[-1], len(history), gram.tol)
        info = {"linear_solver": "pcg on the quadratic", "residual": history[-1]}
        return Solution(X, KX, info | {"n_iterations": len(history)})


def _dots(gram: Gram, U: Matrix, V: Matrix) -> Array:
    return np.diagonal(gram.inner(U, V))


def _ratio(a: Array, b: Array) -> Array:
    return np.asarray(np.divide(a, b, out=np.zeros_like(a), where=b != 0))
