"""Operators that do not store K, and solve linear systems by preconditioned conjugate gradients.

:class:`StreamedGram` evaluates K in tiles, in O(N (p + r)) memory for N rows, p features and thin
matrices with r columns. Preconditioners use the leading eigenvectors of K, approximated from a few
landmarks (theory 8.2).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from domainwise.algebra.gram import tiles
from domainwise.algebra.gram.dense import DenseGram, dense_fits, largest_residual
from domainwise.algebra.gram.rows import RowsGram
from domainwise.algebra.kernels.functions import Kernel
from domainwise.algebra.labels import RowLabels
from domainwise.algebra.methods.components import warn_stopped
from domainwise.algebra.methods.contract import Matrix, Solution
from domainwise.base.arrays import Array, available_memory, cast, namespace

#: Smallest relative residual that can be reached with products in float32.
FLOAT32_TOLERANCE = 1e-5
#: Float32 products reduce the residual by this factor before an accurate product recomputes it.
FLOAT32_REDUCTION = 2e-7
#: Number of landmarks of a preconditioner: enough for default ridges, and cheap compared with one
#: product. If products are compiled, it is at most COMPILED_RANK times the square root of N.
PRECONDITIONER_RANK, COMPILED_RANK = 500, 2.5
#: Number of rows whose features are evaluated at a time, for arrays and for tensors.
PANEL_ROWS, TENSOR_PANEL_ROWS = 1024, 32768

Product = Callable[[Matrix], Matrix]


def conjugate_gradients(
    product: Product,
    V: Matrix,
    shift: Any,
    precondition: Product,
    *,
    tol: float,
    max_iter: int,
    monitor: Callable[[int, float], None] | None = None,
    accurate_product: Product | None = None,
) -> Solution:
    """Solve ``(K + shift I) X = V`` for all columns together, with one product with K per step.

    V is a NumPy array or a torch tensor. Because of rounding errors, the residual that the
    iteration updates differs from the true residual, which is computed at the end. The iteration
    is restarted while the true residual is above ``tol`` and each restart at least halves it.

    ``shift`` is a number, or one number per column; ``precondition`` is a symmetric positive
    definite approximation of the inverse; ``max_iter`` includes the products of restarts.
    ``monitor`` is called with the iteration number and the largest relative residual. If
    ``product`` is fast but less precise, ``accurate_product`` computes the true residual, and
    replaces ``product`` when a restart does not halve the residual.
    """
    is_imprecise = accurate_product is not None
    X, R, n_products, true_residual = V * 0, V, 0, float("inf")
    while True:
        Z = precondition(R)
        P, rz = Z, (R * Z).sum(0)
        best_residual = largest_residual(R, V)
        # An imprecise product reduces the residual only by a limited factor between restarts.
        reduction = FLOAT32_REDUCTION if is_imprecise else 0.0
        target_residual = max(0.5 * tol, reduction * best_residual)
        while n_products < max_iter and best_residual > target_residual:
            KP = product(P) + shift * P
            n_products += 1
            curvature = (P * KP).sum(0)
            step = rz / (curvature + (curvature == 0))
            X = X + step * P
            R_old, R = R, R - step * KP
            residual = largest_residual(R, V)
            if monitor is not None:
                monitor(n_products, residual)
            if residual >= best_residual and residual <= max(tol, target_residual):
                break
            best_residual = min(best_residual, residual)
            Z = precondition(R)
            # The Polak-Ribiere formula also converges if the preconditioner is rounded to float32.
            rz_new = (R * Z).sum(0)
            beta = (rz_new - (R_old * Z).sum(0)) / (rz + (rz == 0))
            P, rz = Z + beta * P, rz_new
        KX = (accurate_product or product)(X)
        R = V - KX - shift * X
        previous_residual, true_residual = true_residual, largest_residual(R, V)
        is_stalled = not true_residual <= 0.5 * previous_residual
        if true_residual <= tol or (is_stalled and not is_imprecise) or n_products + 1 >= max_iter:
            return Solution(X, KX, {"n_iterations": n_products, "residual": true_residual})
        if is_stalled and accurate_product is not None:
            product, is_imprecise, true_residual = accurate_product, False, float("inf")
        n_products += 1


def landmark_rows(n_samples: int, seed: int, max_landmarks: float = float("inf")) -> Array:
    """Return the indices of the landmark rows, in ascending order."""
    m = int(min(PRECONDITIONER_RANK, n_samples, max_landmarks))
    return np.sort(np.random.default_rng(seed).choice(n_samples, m, replace=False, shuffle=False))


def inverse_root(A: Any, eps: float) -> tuple[Any, Any]:
    """Return the non-zero eigenvalues of A, in ascending order, and U with ``U'AU = I``."""
    xp = namespace(A)
    d, U = xp.linalg.eigh(A)
    is_nonzero = d > len(d) * eps * max(float(d[-1]), 0.0)
    return d[is_nonzero], U[:, is_nonzero] / xp.sqrt(d[is_nonzero])


class LandmarkFeatures:
    """Uncentred Nystrom features ``F = k(X, landmarks) root``, with ``F F' ~ K``.

    ``root`` is the :func:`inverse_root` of the landmarks' kernel matrix. Features have the
    precision of the landmarks; moments are in float64.
    """

    def __init__(self, kernel: Kernel, landmarks: Any, eps: float) -> None:
        self.kernel, self.dtype, rows = kernel, landmarks.dtype, kernel.prepare(landmarks)
        W = cast(kernel.block(rows.left, rows.right), namespace(landmarks).float64)
        W = W + kernel.constant
        self.right, self.root = rows.right, cast(inverse_root((W + W.T) / 2, eps)[1], self.dtype)

    def of(self, X: Any, *, compiled: bool = False) -> Any:
        """Return the features of the rows of X."""
        left = self.kernel.prepare(cast(X, self.dtype)).left
        C = self.kernel.block(left, self.right, compiled=compiled) + self.kernel.constant
        return C @ self.root

    def centred_moments(self, X: Any, roots: Any = None) -> Any:
        """Return the second moments of the features, minus those of their mean.

        ``roots`` are the square roots of the weights of rows.
        """
        xp, m = namespace(X), self.root.shape[1]
        total = xp.zeros((m, m), dtype=xp.float64, device=X.device)
        sums, n_samples = xp.zeros_like(total[0]), 0.0
        for rows in tiles.panels(len(X), TENSOR_PANEL_ROWS):
            features = cast(self.of(X[rows]), xp.float64)
            root = xp.ones_like(features[:, :1]) if roots is None else roots[rows]
            features = features * root
            total += features.T @ features
            sums += root[:, 0] @ features
            n_samples += (root * root).sum()
        return total - xp.outer(sums, sums) / n_samples


@dataclass(frozen=True)
class Preconditioner:
    """Approximation of ``(K + shift I)^-1``, up to a scalar factor, from ``K U ~ U diag(d)``.

    In directions orthogonal to U, the smallest of the ``eigenvalues`` d replaces those of K.
    """

    eigenvalues: Any  #: approximate leading eigenvalues of K, in ascending order
    project: Product  #: returns ``U'R``
    expand: Product  #: returns ``U W``

    def at(self, shift: float) -> Product:
        """Return the preconditioner for one shift."""
        if not len(self.eigenvalues):
            return lambda R: R
        weights = ((self.eigenvalues[0] + shift) / (self.eigenvalues + shift) - 1.0)[:, None]
        return lambda R: R + self.expand(weights * self.project(R))

    @classmethod
    def from_features(cls, features: Array) -> Preconditioner:
        """Return a preconditioner that stores U, from centred Nystrom features F with ``F F' ~ K``.

        The features, which are the largest array in a fit, are overwritten by U.
        """
        moments, dtype = np.asarray(features.T @ features, dtype=np.float64), features.dtype
        eigenvalues, root = inverse_root(moments, float(np.finfo(dtype).eps))
        U = features[:, : root.shape[1]]
        for rows in tiles.panels(len(features), PANEL_ROWS):
            U[rows] = features[rows] @ root.astype(dtype)
        return cls(eigenvalues, lambda R: U.T @ cast(R, dtype), lambda W: U @ cast(W, dtype))


class IterativeGram(RowsGram):
    """The centred Gram matrix of the rows of X, which is not stored.

    Subclasses implement the product and the preconditioner.
    """

    def __init__(self, X: Any, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(labels, len(X), X.dtype, getattr(X, "device", "cpu"), **options)
        self.X, self.kernel = X, kernel
        if self.dtype == np.float32:
            self.tol = max(self.tol, FLOAT32_TOLERANCE)

    @property
    @abstractmethod
    def _preconditioner(self) -> Preconditioner:
        """Approximation of the inverse from a few landmarks, computed once."""

    def _dense_gram(self) -> DenseGram | None:
        """Return the operator that stores K, or None if K does not fit into memory."""
        if not dense_fits(self.n_rows, available_memory(self.X)):
            return None
        return DenseGram(tiles.kernel_matrix(self.kernel, self.X), self.labels, self.X.dtype)

    def iteration_products(self) -> tuple[Product, Product | None]:
        """Return the product for the iterations and, if that is imprecise, an accurate one."""
        return self.product, None

    def preconditioner(self, shift: float) -> Product:
        """Return a function that applies an approximate inverse, from a few landmarks."""
        return self._preconditioner.at(shift)

    def solve(self, V: Matrix, shift: float) -> Solution:
        """Solve by conjugate gradients; if they stall and K fits into memory, by Cholesky."""
        return self.solve_shifts(V, [shift])[0]

    def solve_shifts(self, V: Matrix, shifts: Sequence[float]) -> list[Solution]:
        """Solve with all shifts together, so that they share each product with K."""
        if min(shifts, default=1.0) <= 0:
            raise ValueError(
                "ridge=0 needs the whole Gram matrix in memory. Pass a positive ridge, or use "
                'solver="dense" or solver="auto".'
            )
        if not shifts:
            return []
        inverses, n_shifts = [self.preconditioner(shift) for shift in shifts], len(shifts)

        def precondition(R: Matrix) -> Matrix:
            pairs = zip(inverses, self.xp.hsplit(R, n_shifts), strict=True)
            return self.hstack([apply_inverse(columns) for apply_inverse, columns in pairs])

        product, accurate_product = self.iteration_products()
        solution = conjugate_gradients(
            product,
            V if n_shifts == 1 else self.hstack([V] * n_shifts),
            self.to_device(np.repeat(np.asarray(shifts, dtype=np.float64), V.shape[1])),
            inverses[0] if n_shifts == 1 else precondition,
            tol=self.tol,
            max_iter=self.max_iter,
            monitor=lambda i, r: self.report(f"conjugate gradients, step {i}: residual {r:.1e}"),
            accurate_product=accurate_product,
        )
        residual, n_iterations = solution.info["residual"], solution.info["n_iterations"]
        has_converged = residual <= self.tol
        dense_gram = None if has_converged else self._dense_gram()
        if dense_gram is not None:
            self.report("conjugate gradients did not converge; solving by Cholesky")
            direct_solutions = [dense_gram.solve(V, shift) for shift in shifts]
            if max(s.info["residual"] for s in direct_solutions) < residual:
                for direct_solution in direct_solutions:
                    direct_solution.info["pcg_iterations"] = n_iterations
                return direct_solutions
        if not has_converged:
            warn_stopped(residual, n_iterations, self.tol)
        rank = len(self._preconditioner.eigenvalues)
        info = {"linear_solver": "pcg", **solution.info, "preconditioner_rank": rank}
        blocks = (self.xp.hsplit(A, n_shifts) for A in (solution.X, solution.image))
        return [
            Solution(X - self.constant_part(X), KX, dict(info))
            for X, KX in zip(*blocks, strict=True)
        ]


class StreamedGram(IterativeGram):
    """Centred Gram matrix of the rows of X, re-evaluated for each product.

    For float32 rows, products are computed in float32 and summed in float64. For float64 rows,
    iterative linear solves do the same if that is faster.
    """

    def __init__(self, X: Array, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(X, kernel, labels, **options)
        self.prepared_rows = kernel.prepare(X)
        self.info = {"product": tiles.product_path(kernel, self.prepared_rows)}

    def uncentred_product(self, V: Array) -> Array:
        """Return ``K V`` tile by tile."""
        return tiles.symmetric_product(self.kernel, self.prepared_rows, V)

    def iteration_products(self) -> tuple[Product, Product | None]:
        """Return a float32 product and an accurate one if float32 is faster, else one product."""
        use_float32 = tiles.can_use_float32(self.kernel, self.prepared_rows)
        iteration_path = tiles.product_path(self.kernel, self.prepared_rows, float32=use_float32)
        self.info = {**self.info, "iterations": iteration_path}
        if not use_float32:
            return self.product, None
        assert self.row_means is not None  # the property computes them now, in full precision
        multiply = partial(tiles.symmetric_product, self.kernel, self.prepared_rows, float32=True)
        return lambda V: self.centred_product(V, multiply), self.product

    @cached_property
    def _preconditioner(self) -> Preconditioner:
        return Preconditioner.from_features(self._landmark_features())

    def _landmark_features(self) -> Array:
        """Return centred Nystrom features of the rows; float32 is enough for a preconditioner."""
        n = self.n_rows
        use_numba = tiles.use_compiled(n**2)
        max_landmarks = COMPILED_RANK * n**0.5 if use_numba else float("inf")
        landmarks = self.X[landmark_rows(n, self.seed, max_landmarks)]
        nystrom = LandmarkFeatures(self.kernel, landmarks, float(np.finfo(self.dtype).eps))
        features = np.empty((n, nystrom.root.shape[1]), dtype=np.float32)
        panels = tiles.panels(n, PANEL_ROWS)

        def work(thread: int, pool_size: int) -> None:
            for rows in panels[thread::pool_size]:
                features[rows] = nystrom.of(self.X[rows], compiled=use_numba)

        tiles.in_threads(len(panels), work)
        if self.roots is None:
            features -= features.mean(axis=0, dtype=np.float64).astype(np.float32)
        else:
            features *= self.roots
            features -= self.constant_part(features)
        return features
