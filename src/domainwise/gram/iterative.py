"""Operators that only multiply: linear systems by preconditioned conjugate gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.gram.arrays import ArrayGram
from domainwise.gram.solve import conjugate_gradients, warn_not_converged
from domainwise.methods.contract import Solution

#: Relative residual that products in float32 can tell from rounding.
FLOAT32_TOLERANCE = 1e-5
#: Landmarks of the preconditioner: cheap next to one product, and enough for default ridges.
PRECONDITIONER_RANK = 500


class IterativeGram(ArrayGram):
    """Centred Gram matrix that is not stored; products are all there is.

    A subclass multiplies, and builds a preconditioner: an object with the eigenvalues it knows as
    ``values``, and ``at(shift)``, which returns its inverse as a function.

    Parameters
    ----------
    labels : RowLabels
    dtype : dtype
    **options
        See :class:`~domainwise.gram.arrays.ArrayGram`.
    """

    def __init__(self, labels: Any, dtype: Any, **options: Any) -> None:
        super().__init__(labels, dtype, **options)
        if self.dtype == np.float32:
            self.tol = max(self.tol, FLOAT32_TOLERANCE)
        self._preconditioner: Any = None

    @abstractmethod
    def _build_preconditioner(self) -> Any:
        """Approximate the inverse from a few landmarks."""

    def _direct(self, V: Array, shift: float) -> Solution | None:
        """Solve without iterating, where that is affordable."""
        return None

    def preconditioner(self, shift: float) -> Callable[[Array], Array]:
        """Return the inverse that a few landmarks know."""
        if self._preconditioner is None:
            self._preconditioner = self._build_preconditioner()
        inverse: Callable[[Array], Array] = self._preconditioner.at(shift)
        return inverse

    def solve(self, V: Array, shift: float) -> Solution:
        """Solve by preconditioned conjugate gradients; directly if they stall and it fits."""
        return self.solve_shifts(V, [shift])[0]

    def solve_shifts(self, V: Array, shifts: Sequence[float]) -> list[Solution]:
        """Solve with all shifts side by side: kernel values are computed once for all of them."""
        if min(shifts, default=1.0) <= 0:
            raise ValueError('a shift of 0 (ridge=0) needs solver="dense"')
        if not shifts:
            return []
        inverses = [self.preconditioner(shift) for shift in shifts]

        def precondition(R: Array) -> Array:
            parts = np.hsplit(R, len(shifts))
            return np.hstack([inverse(P) for inverse, P in zip(inverses, parts, strict=True)])

        result = conjugate_gradients(
            self.product,
            np.hstack([V] * len(shifts)),
            np.repeat(np.asarray(shifts, dtype=np.float64), V.shape[1]),
            precondition,
            tol=self.tol,
            max_iter=self.max_iter,
            monitor=lambda i, r: self.report(f"conjugate gradients {i}: residual {r:.1e}"),
        )
        if not result.converged:
            direct = [self._direct(V, shift) for shift in shifts]
            found = [one for one in direct if one is not None]
            if (
                len(found) == len(shifts)
                and max(one.info["residual"] for one in found) < result.residual
            ):
                for one in found:
                    one.info["pcg_iterations"] = result.n_iterations
                return found
            warn_not_converged(result, self.tol)
        info = {
            "linear_solver": "pcg",
            "n_iterations": result.n_iterations,
            "residual": result.residual,
            "preconditioner_rank": len(self._preconditioner.values),
        }
        parts = zip(
            np.hsplit(result.X, len(shifts)), np.hsplit(result.KX, len(shifts)), strict=True
        )
        return [Solution(X - X.mean(axis=0), dict(info), KX) for X, KX in parts]
