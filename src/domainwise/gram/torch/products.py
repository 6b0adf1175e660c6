"""Products of kernel matrices with thin tensors: fused where possible, else tile by tile.

The loops are apart from those of :mod:`domainwise.gram.tiles`: there tiles are dealt out to threads
and use one buffer again, here a device takes one tile after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from domainwise.gram import tiles
from domainwise.gram.tiles import panels
from domainwise.gram.torch.fused import FusedKernel, can_fuse
from domainwise.kernels.fourier import Basis
from domainwise.kernels.functions import Kernel
from domainwise.kernels.precision import current_precision

Tensor = Any

#: A tile's bytes at most: beyond this a GPU is filled.
CUDA_TILE_BYTES = 256 * 2**20


def kernel_product(
    kernel: Basis, right: Tensor, left: Tensor | None = None, *, precision: str | None = None
) -> _FactorProduct | _BlockedProduct | FusedKernel:
    """Choose how to multiply; ``left`` is ``right`` unless it is given.

    ``product(V)`` of the result is ``k(left, right) V`` in float64 for a thin float64 V and the
    uncentred kernel, up to its constant.
    """
    if left is not None and left.dtype != right.dtype:
        widest = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(widest), right.to(widest)
    if kernel.is_product:
        return _FactorProduct(kernel, right, left)
    if isinstance(kernel, Kernel) and can_fuse(kernel, right):
        return FusedKernel(kernel, right, left, precision=precision or current_precision())
    return _BlockedProduct(kernel, right, left)


class _FactorProduct:
    """A kernel that is a product of features: two thin products, in float64."""

    path = "feature products"

    def __init__(self, kernel: Basis, right: Tensor, left: Tensor | None) -> None:
        self.right: Tensor = kernel.prepare(right).right
        self.left: Tensor = self.right if left is None else kernel.prepare(left).left

    def product(self, V: Tensor) -> Tensor:
        middle = torch.zeros((self.right.shape[1], V.shape[1]), dtype=V.dtype, device=V.device)
        for rows in panels(len(V), 65536):
            middle += self.right[rows].double().T @ V[rows]
        parts = [self.left[rows].double() @ middle for rows in panels(len(self.left), 65536)]
        return torch.cat(parts)


class _BlockedProduct:
    """Tiles of the kernel matrix, used and forgotten; a symmetric one is evaluated half."""

    path = "blocked torch"

    def __init__(self, kernel: Basis, right: Tensor, left: Tensor | None) -> None:
        self.kernel = kernel
        self.rows = kernel.prepare(right)
        self.symmetric = left is None
        self.left = self.rows.left if left is None else kernel.prepare(left).left
        self.side = tile_side(right)

    def product(self, V: Tensor) -> Tensor:
        V = V.to(self.left.dtype)
        total = torch.zeros((len(self.left), V.shape[1]), dtype=torch.float64, device=V.device)
        if not V.shape[1]:
            return total
        columns = panels(len(self.rows.right), self.side)
        with full_precision():
            for i, a in enumerate(panels(len(self.left), self.side)):
                for b in columns[i:] if self.symmetric else columns:
                    tile = self.kernel.block(self.left[a], self.rows.right[b])
                    total[a] += tile @ V[b]
                    if self.symmetric and b is not columns[i]:
                        total[b] += tile.T @ V[a]
        return total


def kernel_matrix(kernel: Kernel, X: Tensor) -> Tensor:
    """Return the whole uncentred kernel matrix in float64, exactly symmetric."""
    rows, n = kernel.prepare(X.double() if kernel.is_product else X), len(X)
    K = torch.empty((n, n), dtype=torch.float64, device=X.device)
    cuts = panels(n, tile_side(X))
    with full_precision():
        for i, a in enumerate(cuts):
            for b in cuts[i:]:
                tile = kernel.block(rows.left[a], rows.right[b])
                if b is a:
                    tile = (tile + tile.T) / 2
                K[a, b] = tile
                K[b, a] = tile.T
    return K


def tile_side(X: Tensor) -> int:
    """Rows of a square tile within scikit-learn's ``working_memory``."""
    return tiles.tile_side(X.element_size(), CUDA_TILE_BYTES if X.device.type == "cuda" else None)


@contextmanager
def full_precision(*, tf32: bool = False) -> Iterator[None]:
    """Keep torch from rounding float32 products to TF32, whatever the program has asked for.

    ``tf32`` asks for it instead.
    """
    before, wanted = torch.get_float32_matmul_precision(), "high" if tf32 else "highest"
    if before == wanted:
        yield
        return
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
