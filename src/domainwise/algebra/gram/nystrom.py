"""Nystrom features, and the Gram operator that is computed from their sums over rows (theory 9).

``K ~ Phi Phi'`` with ``Phi = k(X, landmarks) L^-T`` and ``L L' = k(landmarks, landmarks)``. Rows
are read once and not stored; :mod:`domainwise.algebra.gram.sums` adds up their features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpstrf

from domainwise.algebra.gram.tiles import cross_product
from domainwise.algebra.kernels.approximations import Basis, FourierMap
from domainwise.algebra.kernels.functions import Kernel, check_finite
from domainwise.algebra.labels import LabelSpace, kernel_columns, label_kernel, pivoted_cholesky
from domainwise.algebra.methods.contract import (
    Gram,
    Images,
    Matrix,
    RitzPairs,
    Solution,
    pairs_within,
)
from domainwise.base.arrays import Array, cast, evenly_spaced, namespace, to_device_of

#: A product with a triangular matrix is computed in this number of panels, to skip most zeros.
PANELS = 4
#: Summing float64 kernel values, not features, causes relative errors of about this in solutions,
#: divided by the ridge and by the ratio of L's smallest to largest squared diagonal entry.
DIRECT_ROUNDING = 2e-18
#: Spacing of a grid of target landmarks, in bandwidths of the RBF kernel, and maximum grid size.
GRID_STEP, MAX_GRID = 0.5, 5000
#: Label landmarks are chosen from at most this number of evenly spaced labels in the first batch.
MAX_CANDIDATES = 10_000


@dataclass(frozen=True)
class NystromMap:
    """The map from rows to Nystrom features, or to random Fourier features."""

    kernel: Basis
    landmarks: Array  #: rows whose kernel functions are linearly independent up to rounding
    #: Lower Cholesky factor of the landmarks' kernel matrix; None for random Fourier features.
    triangle: Array | None
    n_asked: int  #: number of landmarks, including linearly dependent ones that were dropped
    direct: bool = False  #: whether to sum kernel values, which is faster than summing features
    #: Indices of ``landmarks`` among all landmarks, including dropped ones.
    chosen: Array | None = field(default=None, repr=False, compare=False)

    #: Precision of the features; None for the precision of the prepared landmarks.
    dtype: ClassVar[Any] = None

    @cached_property
    def _prepared(self) -> Any:
        return self.kernel.prepare(self.landmarks).right

    @cached_property
    def _inverse(self) -> Any:
        inverse = solve_triangular(self.triangle, np.eye(self.n_features), lower=True).T
        return cast(to_device_of(inverse, self.landmarks), self.dtype or self._prepared.dtype)

    @classmethod
    def fourier(cls, basis: FourierMap) -> NystromMap:
        """Return the map to random Fourier features; its landmarks are frequencies and phases."""
        return cls(basis, basis.points, None, basis.n_features)

    @classmethod
    def from_landmarks(
        cls, kernel: Kernel, landmarks: Array, *, ridge: float = 0.0, rounding: float = 1e-11
    ) -> NystromMap:
        """Choose linearly independent landmarks by a pivoted Cholesky decomposition.

        ``ridge`` is the regularization, per row, of the linear systems to be solved later. Kernel
        values are summed (``direct``) if this causes errors below ``rounding`` in their solutions.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            # Nothing may depend on the rows, so that sums of different rows can be merged.
            kernel = kernel.centred_on(landmarks) if kernel.name == "rbf" else kernel
            W = check_finite(_float64_matrix(kernel, landmarks), landmarks.dtype)
        eps, eps_double = np.finfo(landmarks.dtype).eps, np.finfo(np.float64).eps
        # Pivots below the tolerance only reflect the landmarks' precision or rounding errors in W.
        tolerance = max(eps, len(W) * eps_double) * float(np.abs(np.diagonal(W)).max(initial=0.0))
        max_diagonal = float(np.diagonal(W).max(initial=0.0))
        factor, order, rank, _ = dpstrf(W, tol=tolerance, lower=1)
        L, order = np.tril(factor[:rank, :rank]), order - 1
        pivots, non_pivots = order[:rank], order[rank:]
        if max_diagonal <= 0 or not np.isfinite(L).all():
            raise ValueError(
                "the kernel matrix must have a positive and finite diagonal. If it contains "
                "distances or negated kernel values, pass kernel values instead."
            )
        # A kernel known to be indefinite (not ``sound``) is accepted: L uses only positive pivots.
        residual_diagonal = W[non_pivots, non_pivots] - np.square(factor[rank:, :rank]).sum(axis=1)
        if kernel.sound and residual_diagonal.min(initial=0.0) < -1e-6 * max_diagonal:
            raise ValueError("the kernel is not positive semi-definite. Choose another kernel.")
        squared_diagonal = np.diagonal(L) ** 2
        ratio = float(squared_diagonal.min() / squared_diagonal.max())
        is_direct = ratio * min(ridge, 1.0) * (eps_double / eps) > DIRECT_ROUNDING / rounding
        return cls(kernel, landmarks[pivots], L, len(landmarks), is_direct, pivots)

    @property
    def n_features(self) -> int:
        """Number of features: one for each landmark that was not dropped."""
        return len(self.landmarks)

    def features(self, X: Any, memory: Array | None = None, **options: Any) -> Any:
        """Return the uncentred features of rows, in the precision of the landmarks."""
        if self.triangle is None:
            return self._kernel_values(X, memory)
        C = self._kernel_values(X, None, **options)
        C += self.kernel.constant
        xp = namespace(C)
        Phi = xp.empty_like(C) if memory is None else _view(memory, C.shape, C.dtype)
        for start, stop in pairwise(np.linspace(0, self.n_features, PANELS + 1).astype(int)):
            xp.matmul(C[:, :stop], self._inverse[:stop, start:stop], out=Phi[:, start:stop])
        return Phi

    def values(self, X: Array, weights: Array) -> Array:
        """Return ``Phi weights`` for the features Phi of X, minus a constant for each column."""
        landmarks = self.kernel.prepare(self.landmarks)
        return cross_product(self.kernel, X, landmarks, self.dual(weights))

    def summands(
        self, X: Any, memory: Any = None, distances: Any = None, *, compiled: bool = False
    ) -> Any:
        """Return the columns that are summed: features, or kernel values if ``direct``.

        ``memory`` is an array to overwrite, large enough for the result. ``distances`` between X
        and all landmarks can be shared by kernels that differ in gamma. ``compiled=True`` uses
        compiled exponentials, which are faster for many rows.
        """
        evaluate = self._kernel_values if self.direct else self.features
        return evaluate(X, memory, distances=distances, compiled=compiled)

    def _kernel_values(
        self, X: Any, memory: Any = None, distances: Any = None, compiled: bool = False
    ) -> Any:
        """Return kernel values between rows and landmarks, minus ``kernel.constant``."""
        if distances is not None and isinstance(self.kernel, Kernel):
            kernel_values = self.kernel.of_distances(distances[:, self.chosen], compiled=compiled)
        else:
            left = self.kernel.prepare(cast(X, self.landmarks.dtype)).left
            shape = (len(X), self.n_features)
            out = None if memory is None else _view(memory, shape, left.dtype)
            kernel_values = self.kernel.block(left, self._prepared, out, compiled=compiled)
        return cast(kernel_values, self.dtype or self._prepared.dtype)

    def dual(self, weights: Array) -> Array:
        """Return the coefficients of the landmarks, given the weights of the features."""
        if self.triangle is None:
            return weights
        return np.asarray(solve_triangular(self.triangle, weights, lower=True, trans="T"))


def _view(memory: Array, shape: tuple[int, int], dtype: Any) -> Array:
    """Return the first elements of ``memory`` as an array of this shape and dtype."""
    return memory.view(dtype)[: shape[0] * shape[1]].reshape(shape)


def _float64_matrix(kernel: Kernel, X: Array) -> Array:
    """Return the kernel matrix of rows, evaluated in float64."""
    origin = None if kernel.origin is None else kernel.origin.astype(np.float64)
    return np.asarray(replace(kernel, origin=origin).matrix(X.astype(np.float64)))


@dataclass(frozen=True)
class LabelMap:
    """The map from continuous labels to features, defined before the pass over the rows."""

    kernel: Kernel | None  #: None for the linear kernel, whose features are the labels themselves
    points: Array  #: landmarks, one row per landmark and one column per label column
    triangle: Array  #: lower Cholesky factor of the landmarks' kernel matrix

    @classmethod
    def choose(
        cls,
        labels: Array,
        kernel: str | Callable[..., Array],
        gamma: float | str,
        tolerance: float,
        name: str,
        points: Any = None,
        weights: Array | None = None,
    ) -> LabelMap:
        """Choose landmarks from ``points``, or from ``labels``, the labels of the first batch.

        If ``gamma`` is a string, it is computed from the labels. Landmarks are added until the mean
        diagonal entry of the residual matrix is below ``tolerance``. ``name`` is the name of the
        kernel in messages. ``points=(low, high)`` means a grid over this range with a spacing of
        ``GRID_STEP`` bandwidths of the RBF kernel.
        """
        if kernel == "linear":
            return cls(None, labels[:0], np.zeros((0, 0)))
        if gamma == "median" and not np.ptp(labels, axis=0).any():
            gamma = 1.0  # constant labels have no median distance
        resolved_kernel = label_kernel(labels, kernel, gamma, weights)
        if points is not None:
            candidates = _target_landmarks(points, labels, resolved_kernel)
        else:
            candidates = labels[evenly_spaced(len(labels), MAX_CANDIDATES)]
        column_of, diagonal = kernel_columns(resolved_kernel, candidates)
        rounding = len(candidates) * np.finfo(float).eps * float(diagonal.max())
        factor, pivots = pivoted_cholesky(
            column_of, diagonal, max(tolerance * len(candidates), rounding), name, rounding=rounding
        )
        return cls(resolved_kernel, candidates[pivots], np.tril(factor[pivots]))

    @property
    def n_features(self) -> int:
        """Number of features of a label."""
        return int(self.points.shape[1 if self.kernel is None else 0])

    def features(self, labels: Array) -> Array:
        """Return the features of labels, one row per label."""
        if self.kernel is None:
            return labels
        C = self.kernel.matrix(labels, self.points)
        return np.asarray(solve_triangular(self.triangle, C.T, lower=True).T)


def _target_landmarks(points: Any, labels: Array, kernel: Kernel) -> Array:
    """Check ``target_landmarks`` and return them as an array."""
    if isinstance(points, tuple):
        if len(points) != 2 or not points[0] < points[1] or labels.shape[1] != 1:
            raise ValueError(
                f"target_landmarks={points!r} must be an array, or a range (low, high) for a "
                "single target, with low < high."
            )
        if kernel.name != "rbf":
            raise ValueError(
                f"target_landmarks={points!r} is a range, which needs an RBF target kernel. Pass "
                "an array of landmarks."
            )
        spacing = GRID_STEP / np.sqrt(2.0 * kernel.gamma)
        n_points = int(np.ceil((points[1] - points[0]) / spacing)) + 1
        if n_points > MAX_GRID:
            raise ValueError(
                f"target_landmarks={points!r} needs a grid of {n_points} landmarks for this "
                f"target_gamma; at most {MAX_GRID} are allowed. Pass a smaller target_gamma, or an "
                "array of landmarks."
            )
        return np.linspace(points[0], points[1], n_points)[:, None]
    landmarks = np.asarray(points, dtype=np.float64)
    landmarks = landmarks[:, None] if landmarks.ndim == 1 else landmarks
    if landmarks.ndim != 2 or landmarks.shape[1] != labels.shape[1] or not len(landmarks):
        raise ValueError(
            f"target_landmarks must have shape (n_landmarks, {labels.shape[1]}); got "
            f"{landmarks.shape}"
        )
    if not np.isfinite(landmarks).all():
        raise ValueError("target_landmarks contains NaN or infinite values. Pass finite values.")
    return landmarks


class NystromGram(Gram):
    """The Gram matrix ``Phi Phi'`` of centred features, represented by sums over rows.

    A thin matrix (N rows, few columns) is represented by coordinates: first with respect to the
    columns of Phi, then with respect to the orthonormal label directions. ``moments`` is
    ``Phi'Phi``, and ``cross`` contains the products of the label directions with Phi.
    ``landmark_features``, the centred features of the landmarks, determine the signs of components.
    """

    def __init__(
        self,
        moments: Array,
        cross: Array,
        labels: LabelSpace,
        landmark_features: Array,
        dtype: Any,
        n_rows: int,
    ) -> None:
        self.moments, self.cross, self.labels = moments, cross, labels
        self.n_samples, self.n_rows = labels.n_samples, n_rows
        self.landmark_features = landmark_features
        self.size = len(moments)
        self.tolerance = 1e-10 if np.dtype(dtype) == np.float64 else 1e-5

    def weights(self, V: Matrix) -> Array:
        """Return ``Phi'V``, the weights of the features that represent the function ``k(x)'V``."""
        return np.asarray(self.moments @ V[: self.size] + self.cross.T @ V[self.size :])

    def lift(self, coordinates: Array) -> Array:
        """Return label-space coordinates, preceded by zeros for the features."""
        return np.vstack([np.zeros((self.size, coordinates.shape[1])), coordinates])

    def inner(self, U: Array, V: Array) -> Array:
        """Return ``U'V``, the inner products over rows, without storing the rows."""
        label_products = U[self.size :].T @ (self.cross @ V[: self.size] + V[self.size :])
        return np.asarray(U[: self.size].T @ self.weights(V) + label_products)

    def product(self, V: Array) -> Array:
        """Return ``K V``, which lies in the span of the features."""
        return self._from_features(self.weights(V))

    def solve(self, V: Array, shift: float) -> Solution:
        """Solve by the Woodbury identity: ``(V - Phi (Phi'Phi + shift I)^-1 Phi'V) / shift``."""
        weights = self.weights(V)
        if shift == 0:
            d, U = self._spectrum()
            X = self._from_features(U @ ((U.T @ weights) / d[:, None] ** 2))
            return Solution(X, self.product(X), {"linear_solver": "eigh", "rank": len(d)})
        A = self.moments + shift * np.eye(self.size)
        factor = cho_factor((A + A.T) / 2, lower=True, overwrite_a=True)
        image = self._from_features(cho_solve(factor, weights))
        return Solution((V - image) / shift, image, {"linear_solver": "cholesky"})

    def ritz(
        self, images: Images, k: int, *, depth: int = 1, start: Matrix = None, **options: Any
    ) -> RitzPairs:
        """Return the leading eigenpairs within the span of all features and ``start``."""
        d, U = self._spectrum()
        if not len(d):  # all rows have the same features
            X = self.lift(np.zeros((self.labels.size, 0)))
            return RitzPairs(d, X, X, {"eigen_solver": "lapack", "converged": True})
        X = self._from_features(U / np.sqrt(d))
        if start is not None:
            for _ in range(2):
                start = start - X @ self.inner(X, start)
            e, V = np.linalg.eigh(self.inner(start, start))
            is_nonzero = e > self.tolerance * max(float(e[-1]), 1e-8)
            X = np.hstack([X, start @ (V[:, is_nonzero] / np.sqrt(e[is_nonzero]))])
        KX = self.product(X)
        return pairs_within(self, images, k, X, KX, self.product(KX) if depth == 2 else None)

    def anchors(self, dual: Array, values: Array) -> Array:
        """Return the values of the components at the landmarks."""
        return np.asarray(self.landmark_features @ self.weights(dual))

    def _from_features(self, weights: Array) -> Array:
        """Return the coordinates of ``Phi weights``."""
        return np.vstack([weights, np.zeros((len(self.cross), weights.shape[1]))])

    def _spectrum(self) -> tuple[Array, Array]:
        """Return the non-zero eigenvalues of the moments, in ascending order, and eigenvectors."""
        d, U = np.linalg.eigh((self.moments + self.moments.T) / 2)
        is_nonzero = d > len(d) * np.finfo(float).eps * max(float(d[-1]), 0.0)
        return d[is_nonzero], U[:, is_nonzero]
