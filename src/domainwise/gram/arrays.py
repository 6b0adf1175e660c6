"""What operators over N rows of NumPy arrays have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.gram.krylov import krylov_pairs
from domainwise.kernels.functions import check_finite
from domainwise.labels.factors import RowLabels
from domainwise.methods.contract import Gram, Images, RitzPairs, Thin


class ArrayGram(Gram):
    """Centred Gram matrix of N rows; thins are float64 arrays of shape (N, r).

    Parameters
    ----------
    labels : RowLabels
    dtype : dtype
        Precision of the products.
    tol : float
        Relative residual of linear solves; eigenvectors are found to a hundredth of it.
    max_iter : int
    seed : int
    verbose : int
    """

    def __init__(
        self,
        labels: RowLabels,
        dtype: Any,
        *,
        tol: float = 1e-6,
        max_iter: int = 200,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        self.labels = labels
        self.n_samples = labels.space.n_samples
        self.dtype = np.dtype(dtype)
        self.tol, self.max_iter, self.seed, self.verbose = tol, max_iter, seed, verbose
        self.tolerance = 1e-10 if self.dtype == np.float64 else 1e-5
        self._row_means: Array | None = None

    @abstractmethod
    def uncentred_product(self, V: Array) -> Array:
        """Return the product of the uncentred kernel matrix (up to a constant) with V."""

    def lift(self, coordinates: Array) -> Array:
        """Turn label-space coordinates into rows."""
        return self.labels.rows(coordinates)

    def inner(self, U: Array, V: Array) -> Array:
        """Return ``U'V``."""
        return np.asarray(U.T @ V)

    def combine(self, V: Array, A: Array) -> Array:
        """Return ``V A``."""
        return np.asarray(V @ A)

    def hstack(self, thins: list[Thin]) -> Array:
        """Put arrays side by side."""
        return np.hstack(thins)

    def product(self, V: Array) -> Array:
        """Return ``H K H V``; the first call gets the row means of K in the same pass."""
        V = V - V.mean(axis=0)
        if self._row_means is None:
            both = self.uncentred_product(np.hstack([V, np.ones((self.n_samples, 1))]))
            self._row_means = both[:, -1] / self.n_samples
            KV = both[:, :-1]
        else:
            KV = self.uncentred_product(V)
        return np.asarray(self.check_finite(KV - KV.mean(axis=0)))

    def check_finite(self, values: Array) -> Array:
        """Refuse a kernel that overflows."""
        return check_finite(values, self.dtype)

    @property
    def row_means(self) -> Array:
        """Mean of each row of the uncentred kernel matrix, up to the kernel's constant."""
        if self._row_means is None:
            self.product(np.zeros((self.n_samples, 0)))
        assert self._row_means is not None
        return self._row_means

    def offset(self, dual: Array) -> Array:
        """What to subtract from ``k(x)'dual`` so that training rows have mean zero."""
        return np.asarray(self.row_means @ dual)

    def ritz(
        self,
        images: Images,
        k: int,
        *,
        depth: int = 1,
        start: Thin = None,
        precondition: Callable[[Thin], Thin] | None = None,
    ) -> RitzPairs:
        """Return leading eigenpairs by block Krylov subspaces."""
        # Vectors are known to the root of what their eigenvalues are: ask for more than tol, but at
        # depth 2, where small eigenvalues of K keep the residual up, for tol.
        floor = 1e-6 if self.dtype == np.float32 else 1e-12
        rng = np.random.default_rng(self.seed)
        first = rng.standard_normal((self.n_samples, min(self.n_samples, k + 8)))
        if start is not None:
            first = np.hstack([first, start])
        return krylov_pairs(
            self,
            images,
            k,
            first - first.mean(axis=0),
            depth=depth,
            tol=max(self.tol * (1e-2 if depth == 1 else 1.0), floor),
            max_iter=self.max_iter,
            precondition=precondition,
        )

    def anchors(self, dual: Array, values: Array) -> Array:
        """Signs are settled on all training rows."""
        return values

    def report(self, message: str) -> None:
        """Print progress when asked to."""
        if self.verbose:
            print(f"[domainwise] {message}", flush=True)
