"""The base class of Gram operators whose thin matrices are arrays or tensors with N rows."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from domainwise.algebra.kernels.functions import check_finite
from domainwise.algebra.labels import RowLabels
from domainwise.algebra.methods.components import norms
from domainwise.algebra.methods.contract import Gram, Images, Matrix, RitzPairs, project_pencil
from domainwise.base.arrays import Array, cast, to_host

#: An iteration has stalled if this number of steps did not halve the residual.
STALL_STEPS = 8
#: A subspace that would exceed this number of columns is replaced by its leading Ritz vectors.
MAX_COLUMNS = 400


class RowsGram(Gram):
    """Centred Gram matrix of N rows; thin matrices are float64 arrays or tensors of shape (N, r).

    Only small matrices and scalars are copied from a tensor's device. ``dtype``, the precision of
    the rows, determines the size of rounding errors. Linear solves stop at a relative residual
    of ``tol``, eigensolvers at a hundredth of it (at ``tol`` if the eigenproblem contains ``K K``).

    If rows have weights w, with a diagonal matrix W, the operator is ``W^1/2 H K H' W^1/2``, where
    H subtracts weighted means. It equals the operator of rows that are repeated w times, on vectors
    that are equal in all copies of a row and scaled to keep their length (theory 8.3).
    """

    def __init__(
        self,
        labels: RowLabels,
        n_rows: int,
        dtype: Any,
        device: Any = "cpu",
        *,
        tol: float = 1e-6,
        max_iter: int = 200,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        if not isinstance(device, str):  # the device of a tensor
            self.xp, dtype = sys.modules["torch"], str(dtype).removeprefix("torch.")
        self.device, self.dtype = device, np.dtype(dtype)
        basis = None if labels.dense is None else self.to_device(labels.dense)
        self.labels = replace(labels, dense=basis)
        self.n_samples, self.n_rows = labels.space.n_samples, n_rows
        self.roots = None if labels.roots is None else self.to_device(labels.roots)
        self.tol, self.max_iter, self.seed, self.verbose = tol, max_iter, seed, verbose
        self.tolerance = 1e-10 if self.dtype == np.float64 else 1e-5
        self._row_means: Matrix = None

    @abstractmethod
    def uncentred_product(self, V: Matrix) -> Matrix:
        """Return ``K V``, where K is uncentred; a constant may have been subtracted from K."""

    def lift(self, coordinates: Array) -> Matrix:
        """Turn label-space coordinates into a thin matrix of N rows."""
        return self.labels.lift(coordinates)

    def inner(self, U: Matrix, V: Matrix) -> Array:
        """Return ``U'V``."""
        return to_host(U.T @ V)

    def to_device(self, A: Array) -> Matrix:
        """Return a small matrix on the device of the thin matrices."""
        return A if self.xp is np else self.xp.from_numpy(np.array(A)).to(self.device)

    def random(self, n_columns: int) -> Matrix:
        """Return a thin matrix of standard normal numbers, determined by the seed."""
        shape = (self.n_rows, n_columns)
        if self.xp is np:
            return np.random.default_rng(self.seed).standard_normal(shape)
        generator = self.xp.Generator(self.device).manual_seed(self.seed)
        return self.xp.randn(shape, generator=generator, dtype=self.xp.float64, device=self.device)

    def constant_part(self, V: Matrix) -> Matrix:
        """Return what centring subtracts from the columns of V: means, if there are no weights."""
        return constant_part(V, self.roots)

    def row_coefficients(self, dual: Matrix) -> Matrix:
        """Return the coefficients of the rows, whose sum is zero, from those of this operator."""
        dual = dual - self.constant_part(dual)
        return dual if self.roots is None else dual * self.roots

    def row_values(self, values: Matrix) -> Matrix:
        """Return the values of the rows, from a thin matrix of this operator."""
        return values if self.roots is None else values / self.roots

    def product(self, V: Matrix) -> Matrix:
        """Return ``H K H V`` (H subtracts means); the first call also computes row means of K."""
        return self.centred_product(V, self.uncentred_product)

    def centred_product(self, V: Matrix, multiply: Callable[[Matrix], Matrix]) -> Matrix:
        """Return ``H K H V``, where ``multiply`` multiplies by K."""
        (n, r), needs_means = V.shape, self._row_means is None
        centred_V = self.xp.empty((n, r + needs_means), dtype=self.xp.float64, device=self.device)
        self.xp.subtract(V, self.constant_part(V), out=centred_V[:, :r])
        if needs_means:
            centred_V[:, r:] = 1.0 if self.roots is None else self.roots
        if self.roots is not None:
            centred_V *= self.roots
        return self._centred_image(multiply(centred_V), r)

    def _centred_image(self, KV: Matrix, r: int) -> Matrix:
        """Centre the first r columns of a product; a further column, if present, is ``K 1``."""
        if KV.shape[1] > r:
            self._row_means = KV[:, r] / self.n_samples
            KV = KV[:, :r]
        KV = KV if self.roots is None else KV * self.roots
        KV -= self.constant_part(KV)
        return check_finite(KV, self.dtype)

    @property
    def row_means(self) -> Matrix:
        """Mean of each row of the kernel matrix that :meth:`uncentred_product` multiplies by."""
        if self._row_means is None:
            self.product(self.to_device(np.zeros((self.n_rows, 0))))
        return self._row_means

    def offset(self, dual: Matrix) -> Matrix:
        """Return the mean of ``k(x)'dual`` over rows, for coefficients of rows."""
        return self.row_means @ dual

    def ritz(
        self,
        images: Images,
        k: int,
        *,
        depth: int = 1,
        start: Matrix = None,
        precondition: Callable[[Matrix], Matrix] | None = None,
        n_residuals: int | None = None,
    ) -> RitzPairs:
        """Return leading eigenpairs, computed with block Krylov subspaces.

        The initial subspace is spanned by :meth:`first_block` and ``start``. Each step adds the
        residuals of ``n_residuals`` leading Ritz pairs (by default, of as many as there are initial
        columns). At depth 2 (with ``K K X``) without a preconditioner, it adds K times the Ritz
        vectors instead. A subspace with too many columns is replaced by its leading Ritz vectors.
        """
        block = self.first_block(k)
        if start is not None:
            block = self.hstack([block, start if precondition is None else precondition(start)])
        block = block - self.constant_part(block)
        # The error of an eigenvector is about the square root of the error of its eigenvalue, so
        # tol is reduced, except at depth 2, where small eigenvalues limit the precision.
        min_tol = 1e-6 if self.dtype == np.float32 else 1e-12
        tol = max(self.tol * (1e-2 if depth == 1 else 1.0), min_tol)
        block_size = min(n_residuals or block.shape[1], block.shape[1])
        empty_block = self.combine(block, np.zeros((block.shape[1], 0)))
        X, KX, KKX = empty_block, empty_block, empty_block if depth == 2 else None
        block = _orthonormalize(self, block, empty_block)
        max_errors: list[float] = []
        while True:
            if block.shape[1]:
                image = self.product(block)
                X, KX = self.hstack([X, block]), self.hstack([KX, image])
                if depth == 2:
                    KKX = self.hstack([KKX, self.product(image)])
            eigenvalues, C, AX, BX = project_pencil(self, images, X, KX, KKX)
            n_leading = min(block_size, C.shape[1])
            n_pairs = min(k, n_leading)
            coefs = C[:, :n_leading]
            left, right = self.combine(AX, coefs), self.combine(BX, coefs * eigenvalues[:n_leading])
            residuals, ritz_images = left - right, self.combine(KX, coefs)
            # Errors are relative to the largest norm, which limits the precision of all pairs.
            errors = norms(self, residuals) / norms(self, left).max(initial=np.finfo(float).tiny)
            max_errors.append(float(errors[:n_pairs].max(initial=0.0)))
            has_converged = max_errors[-1] <= tol
            has_stalled = max_errors[-1] > 0.5 * min(max_errors[:-STALL_STEPS], default=np.inf)
            n_steps = len(max_errors)
            if has_converged or has_stalled or not block.shape[1] or n_steps >= self.max_iter:
                info = {"n_iterations": n_steps, "residual": max_errors[-1]}
                X, KX = self.combine(X, C[:, :n_pairs]), self.combine(KX, C[:, :n_pairs])
                return RitzPairs(eigenvalues[:n_pairs], X, KX, info | {"converged": has_converged})
            if X.shape[1] + block_size > max(MAX_COLUMNS, 3 * block_size):
                basis = C[:, : 2 * block_size]
                d, U = np.linalg.eigh(basis.T @ self.inner(X, X) @ basis)
                is_nonzero = d > 1e-12 * d[-1]
                basis = basis @ (U[:, is_nonzero] / np.sqrt(d[is_nonzero]))
                X, KX = self.combine(X, basis), self.combine(KX, basis)
                KKX = self.combine(KKX, basis) if depth == 2 else None
            # After two products with K, a residual is too smooth to extend the subspace.
            block = residuals if depth == 1 else ritz_images
            block = block if precondition is None else precondition(residuals)
            block = _orthonormalize(self, block, X)

    def first_block(self, k: int) -> Matrix:
        """Return the initial columns of an iteration for k eigenpairs."""
        return self.random(min(self.n_rows, k + 8))

    def anchors(self, dual: Matrix, values: Matrix) -> Array:
        """Return the rows of ``values`` at which some component has its largest absolute value."""
        values = self.row_values(values)
        row_indices = self.xp.unique(abs(values).argmax(0))
        return to_host(values[row_indices])

    def report(self, message: str) -> None:
        """Print a progress message if ``verbose`` is positive."""
        if self.verbose:
            print(f"[domainwise] {message}", flush=True)


def constant_part(V: Matrix, roots: Matrix = None) -> Matrix:
    """Return the column means of V or, given square roots of weights, its part along ``roots``."""
    if roots is None:
        return V.mean(0)
    return roots * ((roots.T @ cast(V, roots.dtype)) / (roots**2).sum())


def _orthonormalize(gram: Gram, V: Matrix, X: Matrix) -> Matrix:
    """Return an orthonormal basis of the span of V after projecting out the columns of X."""
    V_norms = norms(gram, V)
    V = gram.combine(V, np.diag(1.0 / np.where(V_norms > 0, V_norms, 1.0)))
    for _ in range(2):
        if X.shape[1]:
            V = V - gram.combine(X, gram.inner(X, V))
        d, U = np.linalg.eigh(gram.inner(V, V))
        is_nonzero = d > 1e-14 * max(float(d[-1]), 1e-8)
        V = gram.combine(V, U[:, is_nonzero] / np.sqrt(d[is_nonzero]))
        if not is_nonzero.any():
            break
    return V
