"""Gram operators whose thins are float64 tensors on the device of X."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from domainwise.arrays import Array
from domainwise.gram.dense import LAPACK_ROWS
from domainwise.gram.iterative import FLOAT32_TOLERANCE
from domainwise.gram.krylov import krylov_pairs
from domainwise.gram.solve import conjugate_gradients, warn_low_rank, warn_not_converged
from domainwise.gram.torch.groups import GroupedProduct, worth_grouping
from domainwise.gram.torch.precondition import LandmarkPreconditioner
from domainwise.gram.torch.products import kernel_matrix, kernel_product
from domainwise.kernels.functions import Kernel
from domainwise.kernels.precision import current_precision
from domainwise.labels.factors import RowLabels
from domainwise.methods.contract import Gram, Images, RitzPairs, Solution, Thin, project_pencil

Tensor = Any


class TorchGram(Gram):
    """Centred Gram matrix of N rows on one device.

    Only small matrices and scalars travel to the host.

    Parameters
    ----------
    labels : RowLabels
        Whose rows are tensors on the device.
    dtype : torch.dtype
        Precision of the data, which decides what counts as rounding.
    device : torch.device
    tol, max_iter, seed, verbose
        See :class:`~domainwise.gram.arrays.ArrayGram`.
    """

    def __init__(
        self,
        labels: RowLabels,
        dtype: Any,
        device: Any,
        *,
        tol: float = 1e-6,
        max_iter: int = 200,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        self.labels, self.device = labels, device
        self.n_samples = labels.space.n_samples
        self.single = dtype == torch.float32
        self.tol, self.max_iter, self.seed, self.verbose = tol, max_iter, seed, verbose
        self.tolerance = 1e-5 if self.single else 1e-10
        self._row_means: Tensor | None = None

    @abstractmethod
    def uncentred_product(self, V: Tensor) -> Tensor:
        """Return the product of the uncentred kernel matrix (up to a constant) with V."""

    def lift(self, coordinates: Array) -> Tensor:
        """Turn label-space coordinates into rows."""
        return self.labels.rows(coordinates)

    def inner(self, U: Tensor, V: Tensor) -> Array:
        """Return ``U'V`` on the host."""
        return np.asarray((U.T @ V).cpu().numpy())

    def combine(self, V: Tensor, A: Array) -> Tensor:
        """Return ``V A``."""
        return V @ torch.from_numpy(np.array(A, dtype=np.float64)).to(self.device)

    def hstack(self, thins: list[Thin]) -> Tensor:
        """Put tensors side by side."""
        return torch.cat(thins, 1)

    def product(self, V: Tensor) -> Tensor:
        """Return ``H K H V``; the first call gets the row means of K in the same pass."""
        return self._centred_product(V, self.uncentred_product)

    def _centred_product(self, V: Tensor, multiply: Any) -> Tensor:
        (n, r), first = V.shape, self._row_means is None
        centred = torch.empty((n, r + first), dtype=torch.float64, device=self.device)
        torch.sub(V, V.mean(0), out=centred[:, :r])
        if first:
            centred[:, r] = 1.0
        return self._centred_image(multiply(centred), r)

    def _centred_image(self, KV: Tensor, r: int) -> Tensor:
        """Centre a product; a column behind the first r is that of the row means."""
        if KV.shape[1] > r:
            self._row_means = KV[:, r] / self.n_samples
            KV = KV[:, :r]
        KV -= KV.mean(0)
        return KV

    @property
    def row_means(self) -> Tensor:
        """Mean of each row of the uncentred kernel matrix, up to the kernel's constant."""
        if self._row_means is None:
            self.product(torch.zeros((self.n_samples, 0), dtype=torch.float64, device=self.device))
        return self._row_means

    def offset(self, dual: Tensor) -> Tensor:
        """What to subtract from ``k(x)'dual`` so that training rows have mean zero."""
        return self.row_means @ dual

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
        floor = 1e-6 if self.single else 1e-12
        generator = torch.Generator(self.device).manual_seed(self.seed)
        shape = (self.n_samples, min(self.n_samples, k + 8))
        first = torch.randn(shape, generator=generator, dtype=torch.float64, device=self.device)
        if start is not None:
            first = torch.cat([first, start], 1)
        return krylov_pairs(
            self,
            images,
            k,
            first - first.mean(0),
            depth=depth,
            tol=max(self.tol * (1e-2 if depth == 1 else 1.0), floor),
            max_iter=self.max_iter,
            precondition=precondition,
        )

    def anchors(self, dual: Tensor, values: Tensor) -> Array:
        """Signs are settled on all rows, of which only those with a largest value travel."""
        rows = values.abs().argmax(0).unique()
        return np.asarray(values[rows].cpu().numpy())

    def report(self, message: str) -> None:
        """Print progress when asked to."""
        if self.verbose:
            print(f"[domainwise] {message}", flush=True)


class TorchDenseGram(TorchGram):
    """A centred Gram matrix that is stored, in float64.

    Parameters
    ----------
    matrix : tensor of shape (N, N)
        The uncentred kernel matrix in float64, up to a constant.
    labels : RowLabels
    dtype : torch.dtype
    lapack : bool
        Use full eigendecompositions whatever N is.
    **options
        See :class:`TorchGram`.
    """

    def __init__(
        self, matrix: Tensor, labels: RowLabels, dtype: Any, *, lapack: bool = False, **options: Any
    ) -> None:
        super().__init__(labels, dtype, matrix.device, **options)
        self.lapack = lapack or len(matrix) <= LAPACK_ROWS
        self._row_means = matrix.mean(1)
        self.K = matrix - self._row_means
        self.K -= self._row_means[:, None]
        self.K += self._row_means.mean()

    def uncentred_product(self, V: Tensor) -> Tensor:
        """Return ``K V``; the matrix held is centred already."""
        return self.K @ V

    def solve(self, V: Tensor, shift: float) -> Solution:
        """Solve by Cholesky, or by the eigenvalues of K where that breaks or the shift is 0."""
        info: dict[str, Any] = {"linear_solver": "cholesky"}
        X = _cholesky_solve(self.K, V, shift) if shift > 0 else None
        if X is None:
            X, rank = _spectral_solve(self.K, V, shift)
            info = {"linear_solver": "eigh", "rank": rank}
            if shift == 0:
                warn_low_rank(rank, self.n_samples)
        scale = V.norm(dim=0)
        residual = (V - self.K @ X - shift * X).norm(dim=0) / torch.where(scale > 0, scale, 1.0)
        info["residual"] = float(residual.max()) if len(residual) else 0.0
        return Solution(X, info)

    def ritz(
        self,
        images: Images,
        k: int,
        *,
        depth: int = 1,
        start: Thin = None,
        precondition: Callable[[Thin], Thin] | None = None,
    ) -> RitzPairs:
        """Return leading eigenpairs, by LAPACK over the whole space where that is affordable."""
        if not self.lapack:
            return super().ritz(images, k, depth=depth, start=start, precondition=precondition)
        n = self.n_samples
        X = torch.eye(n, dtype=torch.float64, device=self.device) - 1.0 / n
        KKX = self.K @ self.K if depth == 2 else None
        values, C, _, _ = project_pencil(self, images, X, self.K, KKX)
        lead = C[:, :k]
        info = {"eigen_solver": "lapack", "converged": True}
        return RitzPairs(values[:k], self.combine(X, lead), self.combine(self.K, lead), info)


class TorchStreamedGram(TorchGram):
    """Centred Gram matrix of the rows of X, evaluated anew for each product.

    Parameters
    ----------
    X : tensor of shape (N, p)
    kernel : Kernel
    labels : RowLabels
    **options
        See :class:`TorchGram`.
    """

    def __init__(self, X: Tensor, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(labels, X.dtype, X.device, **options)
        if self.single:
            self.tol = max(self.tol, FLOAT32_TOLERANCE)
        self.X, self.kernel = X, kernel
        self._quick = self._accurate = kernel_product(kernel, X)
        self.info = {"product": self._quick.path}
        if self._quick.path == "triton":
            self.info["precision"] = current_precision()
        self._preconditioner: LandmarkPreconditioner | None = None
        self._lifted: tuple[Any, Array] | None = None

    def lift(self, coordinates: Array) -> Tensor:
        """Turn label-space coordinates into rows, and remember what they were made of."""
        thin = super().lift(coordinates)
        self._lifted = (weakref.ref(thin), coordinates)
        return thin

    def product(self, V: Tensor) -> Tensor:
        """Return ``H K H V``; one that is constant on groups of rows is multiplied group-wise."""
        labels: Any = self.labels
        if self._lifted is None or self._lifted[0]() is not V or labels.codes is None:
            return super().product(V)
        if self._quick.path != "triton" or not worth_grouping(self.n_samples, len(labels.counts)):
            return super().product(V)
        table = self._lifted[1] / np.sqrt(labels.counts)[:, None]
        r = table.shape[1]
        table = table - labels.counts @ table / self.n_samples
        if self._row_means is None:
            table = np.hstack([table, np.ones((len(table), 1))])
        grouped = GroupedProduct(
            self.kernel, self.X, labels.codes, labels.counts, precision=self.info["precision"]
        )
        return self._centred_image(grouped.product(table), r)

    def uncentred_product(self, V: Tensor) -> Tensor:
        """Return ``K V`` without K."""
        return self._quick.product(V)

    def preconditioner(self, shift: float) -> Callable[[Tensor], Tensor]:
        """Return the inverse that a few landmarks know."""
        if self._preconditioner is None:
            self._preconditioner = LandmarkPreconditioner(self.X, self.kernel, self.seed)
        return self._preconditioner.at(shift)

    def solve(self, V: Tensor, shift: float) -> Solution:
        """Solve by preconditioned conjugate gradients; by Cholesky if they stall and it fits.

        Residuals are recomputed with a product of full float32 accuracy, whatever the precision of
        the iteration: that makes it an iterative refinement.
        """
        if shift <= 0:
            raise ValueError('a shift of 0 (ridge=0) needs solver="dense"')
        precondition = self.preconditioner(shift)
        if self.info.get("precision") == "tf32" and self._accurate is self._quick:
            self._accurate = kernel_product(self.kernel, self.X, precision="tf32x3")
        result = conjugate_gradients(
            self.product,
            V,
            shift,
            precondition,
            tol=self.tol,
            max_iter=self.max_iter,
            monitor=lambda i, r: self.report(f"conjugate gradients {i}: residual {r:.1e}"),
            accurate_product=lambda P: self._centred_product(P, self._accurate.product),
        )
        assert self._preconditioner is not None
        info = {
            "linear_solver": "pcg",
            "n_iterations": result.n_iterations,
            "residual": result.residual,
            "preconditioner_rank": self._preconditioner.rank,
        }
        if not result.converged:
            direct = self._direct(V, shift)
            if direct is not None and direct.info["residual"] < result.residual:
                direct.info["pcg_iterations"] = result.n_iterations
                return direct
            warn_not_converged(result, self.tol)
        return Solution(result.X - result.X.mean(0), info, result.KX)

    def _direct(self, V: Tensor, shift: float) -> Solution | None:
        free = free_memory(self.device)
        if free is None or 3 * 8 * self.n_samples**2 >= free / 2:
            return None
        self.report("conjugate gradients stalled; solving by Cholesky")
        matrix = kernel_matrix(self.kernel, self.X)
        return TorchDenseGram(matrix, self.labels, self.X.dtype).solve(V, shift)


def _cholesky_solve(K: Tensor, V: Tensor, shift: float) -> Tensor | None:
    """Solve for a centred K and centred V; the constant vector is lifted out of the way first."""
    A = K + max(float(K.trace()), shift) / len(K)
    A.diagonal().add_(shift)
    factor, failed = torch.linalg.cholesky_ex(A)
    if int(failed):
        return None
    X = torch.cholesky_solve(V, factor)
    return X - X.mean(0)


def _spectral_solve(K: Tensor, V: Tensor, shift: float) -> tuple[Tensor, int]:
    """Solve by eigenvalues; those at or below N eps of the largest count as zero."""
    d, U = torch.linalg.eigh(K)
    keep = d > len(d) * torch.finfo(d.dtype).eps * max(float(d[-1]), 0.0)
    shifted = torch.where(keep, d, 0.0) + shift
    inverse = torch.where(shifted > 0, 1.0 / torch.where(shifted > 0, shifted, 1.0), 0.0)
    X = U @ (inverse[:, None] * (U.T @ V))
    return X - X.mean(0), int(keep.sum())


def free_memory(device: Any) -> int | None:
    """Return the bytes free on a device, or None where that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    from domainwise.gram.dense import available_memory

    return available_memory()
