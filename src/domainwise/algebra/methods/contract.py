"""The interface between methods and Gram operators (theory 8.1).

A *thin* matrix has one row per sample and few columns. The Gram operator decides how it is stored:
as an array of N rows, as a tensor on a device, or as coordinates if rows are not stored. DCM and
the other methods add, scale and slice thin matrices, and do everything else through :class:`Gram`,
so that each of them is written once. Small matrices are always float64 NumPy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from domainwise.base.arrays import Array

Matrix = Any  #: a thin matrix
#: ``images(X, KX, KKX) -> (T, AX, BX)``: both sides of an eigenproblem ``A x = theta B x``, and
#: vectors T that make ``T'A X`` and ``T'B X`` symmetric. KKX is None in ``ritz(depth=1)``.
Images = Callable[[Matrix, Matrix, Matrix], tuple[Matrix, Matrix, Matrix]]


@dataclass
class Solution:
    """A solution X, its image under K, and how it was computed."""

    X: Matrix
    image: Matrix
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class RitzPairs:
    """Eigenvalues in descending order, the eigenvectors X, and the products ``K X``."""

    values: Array
    X: Matrix
    KX: Matrix
    info: dict[str, Any] = field(default_factory=dict)


class Gram(ABC):
    """A centred Gram matrix K of N samples, used through its products with thin matrices."""

    n_samples: float  #: number of rows, or the sum of their weights
    n_rows: int  #: number of rows
    #: The module of array functions, NumPy or torch.
    xp: Any = np
    #: Eigenvalues of small matrices are treated as zero below this fraction of the largest one.
    tolerance: float = 1e-10
    #: Relative residual at which iterations stop, and the maximum number of iterations.
    tol: float = 1e-10
    max_iter: int = 200
    #: Entries of ``solver_info_`` about the operator itself.
    info: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def lift(self, coordinates: Array) -> Matrix:
        """Turn label-space coordinates, of shape (s, r), into a thin matrix with r columns."""

    @abstractmethod
    def inner(self, U: Matrix, V: Matrix) -> Array:
        """Return ``U'V`` in float64."""

    def to_device(self, A: Array) -> Matrix:
        """Return a small matrix on the device of the thin matrices."""
        return A

    def combine(self, V: Matrix, A: Array) -> Matrix:
        """Return ``V A`` for a small matrix A."""
        return V @ self.to_device(A)

    def hstack(self, matrices: list[Matrix]) -> Matrix:
        """Put thin matrices side by side."""
        return self.xp.hstack(matrices)

    @abstractmethod
    def product(self, V: Matrix) -> Matrix:
        """Return ``K V``."""

    def lifted_product(self, coordinates: Array) -> tuple[Matrix, Matrix]:
        """Return ``V`` and ``K V`` for ``V = self.lift(coordinates)``."""
        V = self.lift(coordinates)
        return V, self.product(V)

    @abstractmethod
    def solve(self, V: Matrix, shift: float) -> Solution:
        """Return ``(K + shift I)^-1 V`` for centred V; shift 0 means the pseudo-inverse."""

    def solve_shifts(self, V: Matrix, shifts: Sequence[float]) -> list[Solution]:
        """Solve with each of several shifts."""
        return [self.solve(V, shift) for shift in shifts]

    def preconditioner(self, shift: float) -> Callable[[Matrix], Matrix]:
        """Return a function that applies a symmetric approximation of ``(K + shift I)^-1``.

        It may differ from the inverse by a scalar factor. This default calls :meth:`solve`.
        """
        return lambda V: self.solve(V, shift).X

    @abstractmethod
    def ritz(
        self,
        images: Images,
        k: int,
        *,
        depth: int = 1,
        start: Matrix = None,
        precondition: Callable[[Matrix], Matrix] | None = None,
    ) -> RitzPairs:
        """Return the k leading eigenpairs of the eigenproblem that ``images`` defines.

        ``depth`` is 2 if ``images`` (see :data:`Images`) also needs ``K K X``. The search space
        must contain ``start``. Iterative solvers apply ``precondition``, an approximate inverse of
        B, to ``start`` and to residuals.
        """

    @abstractmethod
    def anchors(self, dual: Matrix, values: Matrix) -> Array:
        """Return a column per component; its largest entry sets the sign if labels do not."""

    def leading(self, k: int, deflation: tuple[Matrix, Matrix, Array] | None = None) -> RitzPairs:
        """Return the k leading eigenpairs of K, or of ``K - K Q G^+ Q' K`` given (Q, KQ, G^+)."""
        if deflation is None:
            return self.ritz(lambda X, KX, _: (X, KX, X), k)
        Q, KQ, G_pinv = deflation

        def images(X: Matrix, KX: Matrix, _: Matrix) -> tuple[Matrix, Matrix, Matrix]:
            return X, KX - self.combine(KQ, G_pinv @ self.inner(Q, KX)), X

        return self.ritz(images, k)


def project_pencil(
    gram: Gram, images: Images, X: Matrix, KX: Matrix, KKX: Matrix
) -> tuple[Array, Array, Matrix, Matrix]:
    """Solve an eigenproblem in the span of X; return eigenvalues, coefficients, A X and B X."""
    T, AX, BX = images(X, KX, KKX)
    values, C = definite_pairs(gram.inner(T, AX), gram.inner(T, BX), 1e-3 * gram.tolerance)
    return values, C, AX, BX


def pairs_within(
    gram: Gram, images: Images, k: int, X: Matrix, KX: Matrix, KKX: Matrix
) -> RitzPairs:
    """Return the k leading Ritz pairs of an eigenproblem in the span of X, computed by LAPACK."""
    values, C, _, _ = project_pencil(gram, images, X, KX, KKX)
    X, KX = gram.combine(X, C[:, :k]), gram.combine(KX, C[:, :k])
    return RitzPairs(values[:k], X, KX, {"eigen_solver": "lapack", "converged": True})


def definite_pairs(A: Array, B: Array, tolerance: float = 0.0) -> tuple[Array, Array]:
    """Solve ``A c = theta B c`` for symmetric A and semi-definite B, outside the null space of B.

    The values theta are in descending order. Eigenvalues of B up to ``tolerance`` times the largest
    one are treated as zero.
    """
    A, B = (A + A.T) / 2, (B + B.T) / 2
    d, U = np.linalg.eigh(B)
    is_nonzero = d > max(len(d) * np.finfo(float).eps, tolerance) * max(float(d[-1]), 0.0)
    whitening = U[:, is_nonzero] / np.sqrt(d[is_nonzero])
    values, C = np.linalg.eigh(whitening.T @ A @ whitening)
    return values[::-1], (whitening @ C)[:, ::-1]
