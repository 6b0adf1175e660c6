"""Ridge regression that pays more for what tells domains apart, as pure functions (theory 12.3).

With features Phi of landmarks and a domain factor F, ``sum_i s_i |y_i - f(x_i)|^2 + alpha |f|_w^2``
with ``|f|_w^2 = |f|^2 + w f'FF'f`` is least squares with the penalty ``alpha (I + w DD')``,
``D = Phi'F``: kernel ridge regression with the invariant kernel, without its matrix. All weights
and alphas share the moments of the rows and the eigenvectors of their second moment; what a weight
adds has the rank of F, so that each of them costs little more than a product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from domainwise.arrays import Array
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.tiles import cross_product
from domainwise.kernels.functions import Kernel

#: Rows whose features are held at a time.
BATCH_ROWS = 4096


@dataclass(frozen=True)
class RidgeMoments:
    """What the solutions for all penalties share.

    Attributes
    ----------
    values, vectors : ndarray of shape (M,), (M, M)
        Eigenvalues and -vectors of the weighted, centred second moment of the features. All else
        but the mean is in terms of the latter.
    cross : ndarray of shape (M, c)
        Second moments of features with targets.
    mean, target : ndarray of shape (M,), (c,)
        Weighted means of features and targets.
    directions : dict of ndarray of shape (M, r)
        ``Phi'F`` of each domain factor, by its name.
    """

    values: Array
    vectors: Array
    cross: Array
    mean: Array
    target: Array
    directions: dict[Any, Array]

    @classmethod
    def of_rows(
        cls, features: NystromMap, X: Array, Y: Array, weights: Array, factors: dict[Any, Array]
    ) -> RidgeMoments:
        """Sum over rows, in batches.

        Parameters
        ----------
        features : NystromMap
        X : ndarray of shape (N, p)
        Y : ndarray of shape (N, c)
            Targets.
        weights : ndarray of shape (N,)
            Weight of each row's error.
        factors : dict of ndarray of shape (N, r)
            Domain factors; their columns sum to zero.
        """
        m, total = features.n_features, float(weights.sum())
        target = weights @ Y / total
        second, cross, mean = np.zeros((m, m)), np.zeros((m, Y.shape[1])), np.zeros(m)
        directions = {name: np.zeros((m, F.shape[1])) for name, F in factors.items()}
        for rows in gen_batches(len(X), BATCH_ROWS):
            Phi = features.features(X[rows]).astype(np.float64, copy=False)
            weighted = Phi * weights[rows, None]
            second += Phi.T @ weighted
            cross += weighted.T @ (Y[rows] - target)
            mean += weighted.sum(axis=0)
            for name, F in factors.items():
                directions[name] += Phi.T @ F[rows]
        mean /= total
        second -= total * np.outer(mean, mean)
        values, U = np.linalg.eigh(second)
        turned = {name: U.T @ D for name, D in directions.items()}
        return cls(np.maximum(values, 0.0), U, U.T @ cross, mean, target, turned)

    def solutions(self, name: Any, weight: float, alphas: Sequence[float]) -> Iterator[Array]:
        """Yield one solution of shape (M, c) for each alpha, in terms of the eigenvectors.

        ``(L + alpha I + alpha w DD')^-1 B`` by Woodbury's formula.
        """
        for alpha in alphas:
            inverse = 1.0 / (self.values + alpha)
            plain = inverse[:, None] * self.cross
            if not weight:
                yield plain
                continue
            D = self.directions[name]
            scaled = inverse[:, None] * D
            inner = np.eye(D.shape[1]) / (alpha * weight) + D.T @ scaled
            yield plain - scaled @ np.linalg.solve(inner, D.T @ plain)

    def function(self, features: NystromMap, solutions: Array, share: float = 1.0) -> Expansion:
        """Return the function of one or more solutions side by side, intercept included.

        ``share`` scales it: the part that it has in an average.
        """
        coefficients = share * (self.vectors @ solutions)
        copies = coefficients.shape[1] // len(self.target)
        intercept = share * np.tile(self.target, copies) - self.mean @ coefficients
        return Expansion.of_features(features, coefficients, intercept)


@dataclass(frozen=True)
class Expansion:
    """A function ``sum_j k(x, landmark_j) dual_j + intercept`` with c values."""

    kernel: Kernel
    landmarks: Array
    dual: Array
    intercept: Array

    @classmethod
    def of_features(cls, features: NystromMap, coefficients: Array, intercept: Array) -> Expansion:
        """Write a function of the features in terms of the kernel."""
        dual = features.dual(coefficients)
        constant = features.kernel.constant * dual.sum(axis=0)
        return cls(features.kernel, features.landmarks, dual, intercept + constant)

    def __call__(self, X: Array) -> Array:
        """Values of rows, of shape (n, c)."""
        X = X.astype(self.landmarks.dtype, copy=False)
        prepared = self.kernel.prepare(self.landmarks)
        return np.asarray(cross_product(self.kernel, X, prepared, self.dual) + self.intercept)


def summed(expansions: Iterable[Expansion], X: Array) -> Array:
    """Sum of several functions."""
    return np.asarray(sum(function(X) for function in expansions))
