"""Operators that only multiply: linear systems by preconditioned conjugate gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from domainwise.gram.dense import DenseGram
from domainwise.gram.precondition import Preconditioner
from domainwise.gram.rows import RowsGram
from domainwise.gram.solve import conjugate_gradients, warn_not_converged
from domainwise.methods.contract import Solution, Thin

#: Relative residual that products in float32 can tell from rounding.
FLOAT32_TOLERANCE = 1e-5


class IterativeGram(RowsGram):
    """Centred Gram matrix that is not stored; products are all there is.

    A subclass multiplies, and builds a preconditioner.
    """

    def __init__(self, labels: Any, dtype: Any, device: Any = "cpu", **options: Any) -> None:
        super().__init__(labels, dtype, device, **options)
        if self.dtype == np.float32:
            self.tol = max(self.tol, FLOAT32_TOLERANCE)
        self._preconditioner: Preconditioner | None = None

    @abstractmethod
    def _build_preconditioner(self) -> Preconditioner:
        """Approximate the inverse from a few landmarks."""

    def _stored(self) -> DenseGram | None:
        """Return the same matrix in memory, where that is affordable."""
        return None

    def accurate_product(self, V: Thin) -> Thin:
        """Return a product for the true residual, where others are quick and rough."""
        return self.product(V)

    def preconditioner(self, shift: float) -> Callable[[Thin], Thin]:
        """Return the inverse that a few landmarks know."""
        if self._preconditioner is None:
            self._preconditioner = self._build_preconditioner()
        return self._preconditioner.at(shift)

    def solve(self, V: Thin, shift: float) -> Solution:
        """Solve by preconditioned conjugate gradients; directly if they stall and it fits."""
        return self.solve_shifts(V, [shift])[0]

    def solve_shifts(self, V: Thin, shifts: Sequence[float]) -> list[Solution]:
        """Solve with all shifts side by side: kernel values are computed once for all of them."""
        if min(shifts, default=1.0) <= 0:
            raise ValueError('a shift of 0 (ridge=0) needs solver="dense"')
        if not shifts:
            return []
        inverses, n = [self.preconditioner(shift) for shift in shifts], len(shifts)

        def precondition(R: Thin) -> Thin:
            parts = self.xp.hsplit(R, n)
            return self.hstack([inverse(P) for inverse, P in zip(inverses, parts, strict=True)])

        result = conjugate_gradients(
            self.product,
            V if n == 1 else self.hstack([V] * n),
            self.placed(np.repeat(np.asarray(shifts, dtype=np.float64), V.shape[1])),
            inverses[0] if n == 1 else precondition,
            tol=self.tol,
            max_iter=self.max_iter,
            monitor=lambda i, r: self.report(f"conjugate gradients {i}: residual {r:.1e}"),
            accurate_product=self.accurate_product,
        )
        stored = None if result.converged else self._stored()
        if stored is not None:
            self.report("conjugate gradients stalled; solving by Cholesky")
            direct = [stored.solve(V, shift) for shift in shifts]
            if max(one.info["residual"] for one in direct) < result.residual:
                for one in direct:
                    one.info["pcg_iterations"] = result.n_iterations
                return direct
        if not result.converged:
            warn_not_converged(result, self.tol)
        assert self._preconditioner is not None
        info = {
            "linear_solver": "pcg",
            "n_iterations": result.n_iterations,
            "residual": result.residual,
            "preconditioner_rank": len(self._preconditioner.values),
        }
        parts = zip(self.xp.hsplit(result.X, n), self.xp.hsplit(result.KX, n), strict=True)
        return [Solution(X - X.mean(0), dict(info), KX) for X, KX in parts]
