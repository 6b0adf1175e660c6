"""Base of the operators over N rows of arrays or tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import to_host
from domainwise.kernels.functions import check_finite
from domainwise.labels.factors import RowLabels
from domainwise.methods.components import norms
from domainwise.methods.contract import Gram, Images, Matrix, RitzPairs, project_pencil


class RowsGram(Gram):
    """Centred Gram matrix of N rows; thin ones are float64 arrays or tensors of shape (N, r).

    Only small matrices and scalars leave the device of a tensor. ``dtype``, the precision of the
    rows, decides what counts as rounding; ``tol`` is the relative residual of linear solves, and
    eigenvectors are found to a hundredth of it.
    """

    #: The module of array functions, NumPy or torch.
    xp: Any = np

    def __init__(
        self,
        labels: RowLabels,
        dtype: Any,
        device: Any = "cpu",
        *,
        tol: float = 1e-6,
        max_iter: int = 200,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        self.labels, self.device = labels, device
        self.n_samples = labels.space.n_samples
        self.dtype = np.dtype(dtype if self.xp is np else str(dtype).removeprefix("torch."))
        self.tol, self.max_iter, self.seed, self.verbose = tol, max_iter, seed, verbose
        self.tolerance = 1e-10 if self.dtype == np.float64 else 1e-5
        self._row_means: Matrix = None

    @abstractmethod
    def uncentred_product(self, V: Matrix) -> Matrix:
        """Return the product of the uncentred kernel matrix (up to a constant) with V."""

    def lift(self, coordinates: Array) -> Matrix:
        """Turn label-space coordinates into rows."""
        return self.labels.rows(coordinates)

    def inner(self, U: Matrix, V: Matrix) -> Array:
        """Return ``U'V``."""
        return to_host(U.T @ V)

    def combine(self, V: Matrix, A: Array) -> Matrix:
        """Return ``V A``."""
        return V @ self.placed(A)

    def hstack(self, matrices: list[Matrix]) -> Matrix:
        """Put thin matrices side by side."""
        return self.xp.hstack(matrices)

    def placed(self, A: Array) -> Matrix:
        """Return a small matrix where the thin matrices are."""
        return A

    def random(self, columns: int) -> Matrix:
        """Return a thin matrix of normal numbers, the same for the same seed."""
        rng = np.random.default_rng(self.seed)
        return rng.standard_normal((self.n_samples, columns))

    def product(self, V: Matrix) -> Matrix:
        """Return ``H K H V``; the first call gets the row means of K in the same pass."""
        return self.centred_product(V, self.uncentred_product)

    def centred_product(self, V: Matrix, multiply: Callable[[Matrix], Matrix]) -> Matrix:
        """Return ``H K H V`` where ``multiply`` returns products with K."""
        (n, r), first = V.shape, self._row_means is None
        centred = self.xp.empty((n, r + first), dtype=self.xp.float64, device=self.device)
        self.xp.subtract(V, V.mean(0), out=centred[:, :r])
        if first:
            centred[:, r] = 1.0
        return self._centred_image(multiply(centred), r)

    def _centred_image(self, KV: Matrix, r: int) -> Matrix:
        """Centre a product; a column behind the first r is that of the row means."""
        if KV.shape[1] > r:
            self._row_means = KV[:, r] / self.n_samples
            KV = KV[:, :r]
        KV -= KV.mean(0)
        return check_finite(KV, self.dtype)

    @property
    def row_means(self) -> Matrix:
        """Mean of each row of the uncentred kernel matrix, up to the kernel's constant."""
        if self._row_means is None:
            self.product(self.placed(np.zeros((self.n_samples, 0))))
        return self._row_means

    def offset(self, dual: Matrix) -> Matrix:
        """Value to subtract from ``k(x)'dual`` so that training rows have mean zero."""
        return self.row_means @ dual

    def ritz(
        self,
        images: Images,
        k: int,
        *,
        depth: int = 1,
        start: Matrix = None,
        precondition: Callable[[Matrix], Matrix] | None = None,
        **options: Any,
    ) -> RitzPairs:
        """Return leading eigenpairs by block Krylov subspaces."""
        # The error of an eigenvector is the root of that of its eigenvalue: ask for less than tol.
        # At depth 2, where small eigenvalues of K bound the residual from below, ask for tol.
        floor = 1e-6 if self.dtype == np.float32 else 1e-12
        first = self.first_block(k)
        if start is not None:
            start = start if precondition is None else precondition(start)
            first = self.hstack([first, start])
        tol = max(self.tol * (1e-2 if depth == 1 else 1.0), floor)
        options.update(depth=depth, tol=tol, max_iter=self.max_iter, precondition=precondition)
        return krylov_pairs(self, images, k, first - first.mean(0), **options)

    def first_block(self, k: int) -> Matrix:
        """Return columns with which a search for k eigenpairs can begin."""
        return self.random(min(self.n_samples, k + 8))

    def anchors(self, dual: Matrix, values: Matrix) -> Array:
        """Signs are those of the largest values among all rows."""
        rows = self.xp.unique(abs(values).argmax(0))
        return to_host(values[rows])

    def report(self, message: str) -> None:
        """Print progress if ``verbose``."""
        if self.verbose:
            print(f"[domainwise] {message}", flush=True)


#: Blocks after which a residual that has not halved is as low as it gets.
STALL = 8


def krylov_pairs(
    gram: Gram,
    images: Images,
    k: int,
    start: Matrix,
    *,
    depth: int = 1,
    tol: float = 1e-8,
    max_iter: int = 200,
    max_columns: int = 400,
    grow: int | None = None,
    precondition: Callable[[Matrix], Matrix] | None = None,
) -> RitzPairs:
    """Find the k leading eigenpairs of a problem made of products with K.

    A subspace begins with ``start``, of at least k columns, and grows by the residuals of its
    leading Ritz pairs (at depth 2 without a preconditioner: by their images), of ``grow`` or as
    many as it began with, ``max_iter`` blocks at most; when it has more than ``max_columns``
    columns it is replaced by its leading Ritz vectors. ``tol`` is relative to the size of the
    problem's left side, and ``precondition`` a rough inverse of its right side.
    """
    block = min(grow or start.shape[1], start.shape[1])
    empty = gram.combine(start, np.zeros((start.shape[1], 0)))
    X, KX, KKX = empty, empty, empty if depth == 2 else None
    new = _orthonormal(gram, start, empty)
    info: dict[str, Any] = {}
    history: list[float] = []
    iteration = 0
    while True:
        iteration += 1
        if new.shape[1]:
            image = gram.product(new)
            X, KX = gram.hstack([X, new]), gram.hstack([KX, image])
            if depth == 2:
                KKX = gram.hstack([KKX, gram.product(image)])
        values, C, AX, BX = project_pencil(gram, images, X, KX, KKX)
        width = min(block, C.shape[1])
        n_pairs = min(k, width)
        lead = C[:, :width]
        left, right = gram.combine(AX, lead), gram.combine(BX, lead * values[:width])
        residual, preimage = left - right, gram.combine(KX, lead)
        # Relative to the largest pair, which bounds the precision of small eigenvalues.
        size = norms(gram, left).max(initial=np.finfo(float).tiny)
        error = norms(gram, residual) / size
        info.update(n_iterations=iteration, residual=float(error[:n_pairs].max(initial=0.0)))
        info["converged"] = info["residual"] <= tol
        history.append(info["residual"])
        stalled = len(history) > STALL and history[-1] > 0.5 * min(history[:-STALL])
        if info["converged"] or stalled or not new.shape[1] or iteration >= max_iter:
            lead = C[:, :n_pairs]
            return RitzPairs(values[:n_pairs], gram.combine(X, lead), gram.combine(KX, lead), info)
        if X.shape[1] + block > max(max_columns, 3 * block):
            basis = C[:, : 2 * block]
            d, U = np.linalg.eigh(basis.T @ gram.inner(X, X) @ basis)
            keep = d > 1e-12 * d[-1]
            basis = basis @ (U[:, keep] / np.sqrt(d[keep]))
            X, KX = gram.combine(X, basis), gram.combine(KX, basis)
            KKX = gram.combine(KKX, basis) if depth == 2 else None
        # After two products with K a residual is too smooth to extend the space: use its preimage.
        step = residual if depth == 1 else preimage
        new = _orthonormal(gram, step if precondition is None else precondition(residual), X)


def _orthonormal(gram: Gram, V: Matrix, against: Matrix) -> Matrix:
    """Orthonormal basis of V's part outside the columns of ``against``, without rounding."""
    sizes = norms(gram, V)
    V = gram.combine(V, np.diag(np.where(sizes > 0, 1.0 / np.where(sizes > 0, sizes, 1.0), 0.0)))
    for _ in range(2):
        if against.shape[1]:
            V = V - gram.combine(against, gram.inner(against, V))
        d, U = np.linalg.eigh(gram.inner(V, V))
        keep = d > 1e-14 * max(float(d[-1]), 1e-8)
        V = gram.combine(V, U[:, keep] / np.sqrt(d[keep]))
        if not keep.any():
            break
    return V
